package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	think  = time.Second // of the engine, for an answer
	answer = 64          // tokens of one
)

// engine renders a message in 24 tokens, and answers after a while.
func engine(ctx context.Context, address string) error {
	ids, logprobs := make([]int, answer), make([]float64, answer)
	content := make([]map[string]any, answer)
	for i := range ids {
		ids[i], logprobs[i] = 20000+i*37, -rand.Float64()
		content[i] = map[string]any{"token": fmt.Sprintf("token_id:%d", ids[i]), "logprob": logprobs[i]}
	}
	text := strings.Repeat("word ", answer)
	choice := map[string]any{"index": 0, "text": text, "finish_reason": "stop", "token_ids": ids,
		"message":  map[string]string{"role": "assistant", "content": text},
		"logprobs": map[string]any{"token_logprobs": logprobs, "content": content}}
	return listen(ctx, address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Messages []struct{ Role, Content string } `json:"messages"`
		}
		_ = json.NewDecoder(r.Body).Decode(&q)
		var prompt []int
		for _, m := range q.Messages {
			for i := range 24 {
				prompt = append(prompt, 100+i)
			}
			switch {
			case m.Role != "assistant":
			case len(m.Content) == 1: // a digit, by which recipe finds where an answer ends
				prompt = append(prompt, 100+int(m.Content[0]), 30)
			default:
				prompt = append(prompt, ids...)
			}
		}
		prompt = append(prompt, 7)
		out := map[string]any{"choices": []any{choice}, "usage": map[string]int{"completion_tokens": answer}}
		switch r.URL.Path {
		case "/tokenize":
			out = map[string]any{"tokens": prompt, "max_model_len": 32768}
		case "/v1/models":
			out = map[string]any{"data": []any{map[string]any{"id": "policy", "max_model_len": 32768}}}
		case "/v1/chat/completions":
			out["prompt_token_ids"] = prompt
			time.Sleep(think)
		default:
			time.Sleep(think)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out)
	}))
}

// open opens sessions of recipe's gateway.
func open(ctx context.Context, url, key string, count int) error {
	for range count {
		text, err := ask(ctx, http.DefaultClient, url+"/recipe/v1/sessions", key, map[string]string{"task": "load"})
		if err != nil {
			return err
		}
		var s struct {
			Key     string `json:"key"`
			BaseURL string `json:"base_url"`
		}
		if err := json.Unmarshal(text, &s); err != nil {
			return err
		}
		fmt.Println(s.BaseURL, s.Key)
	}
	return nil
}

func ask(ctx context.Context, client *http.Client, url, key string, body any) ([]byte, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %d %s", url, resp.StatusCode, text)
	}
	return text, err
}

// load runs programs at once, and prints how long a call took beyond the engine's time, and what the process that
// serves them has used.
func load(ctx context.Context, name string, turns, pid int) error {
	var programs [][]string
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		programs = append(programs, strings.Fields(lines.Text()))
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: len(programs)}}
	took, errs := make([][]time.Duration, len(programs)), make([]error, len(programs))
	busy, begun := cpu(pid), time.Now()
	var wg sync.WaitGroup
	for i, p := range programs {
		wg.Go(func() {
			time.Sleep(time.Duration(rand.Int64N(int64(think)))) // programs do not begin together
			took[i], errs[i] = program(ctx, client, p[0], p[1], turns)
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	all := slices.Concat(took...)
	slices.Sort(all)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	fmt.Printf("%s: %d sessions, %d turns, %.0f s; a call beyond the engine's %s: p50 %.1f ms, p99 %.1f ms; CPU "+
		"%.2f ms a call; memory %d MiB\n", name, len(programs), turns, time.Since(begun).Seconds(), think,
		ms(all[len(all)/2]), ms(all[len(all)*99/100]), 1000*(cpu(pid)-busy)/float64(len(all)), memory(pid))
	return nil
}

// program is a loop that keeps its conversation.
func program(ctx context.Context, client *http.Client, url, key string, turns int) (took []time.Duration, err error) {
	messages := []any{}
	for i := range turns {
		messages = append(messages, map[string]string{"role": "user", "content": fmt.Sprint("question ", i)})
		from := time.Now()
		text, err := ask(ctx, client, url+"/chat/completions", key, map[string]any{"model": "policy", "messages": messages})
		if err != nil {
			return nil, err
		}
		took = append(took, time.Since(from)-think)
		var out struct {
			Choices []struct{ Message json.RawMessage }
		}
		if err := json.Unmarshal(text, &out); err != nil || len(out.Choices) != 1 {
			return nil, fmt.Errorf("the answer is %s: %w", text, err)
		}
		messages = append(messages, out.Choices[0].Message)
	}
	return took, nil
}

// cpu are the seconds of processor time that a process has used.
func cpu(pid int) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(text), ") ")
	var user, system float64
	fields := strings.Fields(after)
	if len(fields) > 12 {
		_, _ = fmt.Sscan(fields[11], &user)
		_, _ = fmt.Sscan(fields[12], &system)
	}
	return (user + system) / 100 // clock ticks
}

// memory is the most that a process has held, in MiB.
func memory(pid int) (n int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			_, _ = fmt.Sscan(rest, &n)
		}
	}
	return n / 1024
}
