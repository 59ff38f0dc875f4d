package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// BenchmarkSessions runs 500 sessions of 20 turns at once. The engine takes one second to answer with 64 tokens. The
// figures are the time of a call beyond that second. They include the HTTP work of engine and clients, which run in the
// same process.
func BenchmarkSessions(b *testing.B) {
	const sessions, turns, answer, think = 500, 20, 64, time.Second
	engine := httptest.NewServer(slowEngine(answer, think))
	b.Cleanup(engine.Close)
	folder := b.TempDir()
	g := start(b, Config{Sessions: folder})
	if err := g.SetReplicas([]Replica{{ID: "0", URL: engine.URL}}); err != nil {
		b.Fatal(err)
	}
	if err := g.Admit(context.Background(), "0", 0); err != nil {
		b.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: sessions}}
	b.Cleanup(client.CloseIdleConnections)
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		took := make([][]time.Duration, sessions)
		var wg sync.WaitGroup
		for i := range took {
			_, c := openSession(b, g, `{}`)
			wg.Go(func() {
				time.Sleep(time.Duration(rand.Int64N(int64(think)))) // programs do not begin together
				took[i] = chat(b, client, g.URL(), c.key, turns, think)
			})
		}
		wg.Wait()
		runtime.GC()
		runtime.ReadMemStats(&after)
		all := slices.Concat(took...)
		slices.Sort(all)
		ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
		b.ReportMetric(ms(all[len(all)/2]), "own-p50-ms")
		b.ReportMetric(ms(all[len(all)*99/100]), "own-p99-ms")
		b.ReportMetric(float64(bytesUnder(b, folder))/(sessions*turns*answer), "journal-bytes/token")
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/sessions/1024, "KiB/session")
	}
}

// slowEngine renders a message in 24 tokens, and answers after a while.
func slowEngine(answer int, think time.Duration) http.Handler {
	ids, logprobs := make([]int, answer), make([]float64, answer)
	for i := range ids {
		ids[i], logprobs[i] = 20000+i*37, -rand.Float64()
	}
	text := strings.Repeat("word ", answer)
	done, _ := json.Marshal(map[string]any{"choices": []any{map[string]any{"index": 0, "text": text,
		"finish_reason": "stop", "token_ids": ids, "logprobs": map[string]any{"token_logprobs": logprobs}}},
		"usage": map[string]any{"completion_tokens": answer}})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path != "/tokenize" {
			time.Sleep(think)
			_, _ = w.Write(done)
			return
		}
		var prompt []int
		for _, m := range gjson.GetBytes(body, "messages").Array() {
			for i := range 24 {
				prompt = append(prompt, 100+i)
			}
			if m.Get("role").Str == "assistant" { // a digit
				prompt = append(prompt, 100+int(m.Get("content").Str[0]), 30)
			}
		}
		out, _ := json.Marshal(map[string]any{"tokens": append(prompt, 7), "max_model_len": 32768})
		_, _ = w.Write(out)
	})
}

// chat is a program of so many turns. It returns how long each call took beyond the engine's time.
func chat(b *testing.B, client *http.Client, url, key string, turns int, think time.Duration) []time.Duration {
	var took []time.Duration
	messages := []json.RawMessage{}
	for i := range turns {
		messages = append(messages, json.RawMessage(userSays(fmt.Sprint("question ", i))))
		body, _ := json.Marshal(map[string]any{"messages": messages})
		req, _ := http.NewRequest(http.MethodPost, url+"/v1/chat/completions", bytes.NewReader(body))
		req.Header.Set("Authorization", "Bearer "+key)
		from := time.Now()
		resp, err := client.Do(req)
		if err != nil {
			b.Error(err)
			return nil
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			b.Errorf("%d %s", resp.StatusCode, text)
			return nil
		}
		took = append(took, time.Since(from)-think)
		messages = append(messages, json.RawMessage(gjson.GetBytes(text, "choices.0.message").Raw))
	}
	return took
}

func bytesUnder(b *testing.B, folder string) (n int64) {
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			b.Fatal(err)
		}
		n += info.Size()
	}
	return n
}
