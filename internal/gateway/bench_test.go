package gateway

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/recipe-rl/recipe/sdk"
)

// The benchmarks run the engine, the gateway and the load in three processes, as in a run, so that the gateway's own
// CPU time can be measured. The gateway has one core (GOMAXPROCS=1).
const (
	benchRole   = "RECIPE_GATEWAY_BENCH_ROLE"
	benchEngine = "RECIPE_GATEWAY_BENCH_ENGINE"
)

// playRole is the main function of the engine's and the gateway's process. It ends when its standard input does.
func playRole(role string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	switch role {
	case "engine":
		small, group := benchAnswer(1, 16), benchAnswer(8, 256)
		eights, ones := benchEvents(8, 256, 8), benchEvents(8, 256, 1)
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if bytes.Contains(body, []byte(`"stream_interval":8`)) {
				events := eights
				if bytes.Contains(body, []byte(`"user":"old"`)) { // an engine that does not know stream_interval
					events = ones
				}
				sendEvents(w, events...)
				return
			}
			if bytes.Contains(body, []byte(`"stream":true`)) {
				benchStream(w)
				return
			}
			answer := small
			if bytes.Contains(body, []byte(`"n":8`)) {
				answer = group
			}
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
			_, _ = w.Write(answer)
		})
		go func() { panic(http.Serve(ln, h)) }()
	case "floor": // the standard library's reverse proxy alone
		target, err := url.Parse(os.Getenv(benchEngine))
		if err != nil {
			panic(err)
		}
		p := httputil.NewSingleHostReverseProxy(target)
		p.Transport = &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true}
		p.FlushInterval = -1
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body) // otherwise it sometimes closes a stream that begins before the body has been sent
			r.Body = io.NopCloser(bytes.NewReader(body))
			p.ServeHTTP(w, r)
		})
		go func() { panic(http.Serve(ln, h)) }()
	case "gateway", "pieces":
		g, err := New(Config{Listener: ln, Token: dataToken})
		if err != nil {
			panic(err)
		}
		g.SetModels("policy")
		if err := g.SetReplicas([]Replica{{ID: "0", URL: os.Getenv(benchEngine)}}); err != nil {
			panic(err)
		}
		if err := g.Admit(context.Background(), "0", 0); err != nil {
			panic(err)
		}
		if role == "pieces" {
			if err := g.ExpectUpdates(ModeKeep); err != nil {
				panic(err)
			}
		}
		go func() { panic(g.Serve(context.Background())) }()
	}
	fmt.Println("http://" + ln.Addr().String())
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// benchStream answers with 256 events, each sent separately.
func benchStream(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	for i := range 256 {
		_, _ = fmt.Fprintf(w, `data: {"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"word ","logprobs":{"text_offset":[%d],"token_logprobs":[-0.1234567],"tokens":["token_id:%d"],"top_logprobs":[{"token_id:%d":-0.1234567}]},"finish_reason":null,"token_ids":[%d]}]}`+"\n\n", i, i, i, i)
		_ = out.Flush()
	}
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

// benchEvents are the events in which vLLM would stream n completions of length tokens each, per tokens in an event.
func benchEvents(n, length, per int) (events []string) {
	for at := 0; at < length; at += per {
		for i := range n {
			var ids, lps, tokens, top, offsets []string
			for j := at; j < at+per; j++ {
				id, lp := 1000+i*length+j, fmt.Sprintf("-%d.%016d", j%3, 1234567890123456+j)
				ids, lps, offsets = append(ids, strconv.Itoa(id)), append(lps, lp), append(offsets, strconv.Itoa(4*j))
				tokens, top = append(tokens, fmt.Sprintf(`"token_id:%d"`, id)),
					append(top, fmt.Sprintf(`{"token_id:%d":%s}`, id, lp))
			}
			join := func(s []string) string { return "[" + strings.Join(s, ",") + "]" }
			finish := "null"
			if at+per >= length {
				finish = `"length"`
			}
			events = append(events, fmt.Sprintf(`{"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":[{"index":%d,"text":%q,"logprobs":{"text_offset":%s,"token_logprobs":%s,"tokens":%s,"top_logprobs":%s},"finish_reason":%s,"stop_reason":null,"token_ids":%s}]}`,
				i, strings.Repeat("word ", per), join(offsets), join(lps), join(tokens), join(top), finish, join(ids)))
		}
	}
	return append(events, "[DONE]")
}

// benchAnswer is vLLM's answer to n completions of length tokens each.
func benchAnswer(n, length int) []byte {
	var choices []string
	for i := range n {
		var ids, lps, tokens, top, offsets []string
		for j := range length {
			id, lp := 1000+i*length+j, fmt.Sprintf("-%d.%016d", j%3, 1234567890123456+j)
			ids, lps, offsets = append(ids, strconv.Itoa(id)), append(lps, lp), append(offsets, strconv.Itoa(4*j))
			tokens, top = append(tokens, fmt.Sprintf(`"token_id:%d"`, id)),
				append(top, fmt.Sprintf(`{"token_id:%d":%s}`, id, lp))
		}
		join := func(s []string) string { return "[" + strings.Join(s, ",") + "]" }
		choices = append(choices, fmt.Sprintf(`{"index":%d,"text":%q,"logprobs":{"text_offset":%s,"token_logprobs":%s,"tokens":%s,"top_logprobs":%s},"finish_reason":"length","stop_reason":null,"token_ids":%s,"prompt_logprobs":null,"prompt_token_ids":%s}`,
			i, strings.Repeat("word ", length), join(offsets), join(lps), join(tokens), join(top), join(ids), benchPrompt))
	}
	return fmt.Appendf(nil, `{"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":[%s],"service_tier":null,"usage":{"prompt_tokens":32,"total_tokens":99,"completion_tokens":%d}}`, strings.Join(choices, ","), n*length)
}

const benchPrompt = `[504,3575,282,4649,42,504,3575,282,4649,42,504,3575,282,4649,42,504,3575,282,4649,42,504,3575,282,4649,42,504,3575,282,4649,42,1,2]`

// process starts a role and returns its address and process id.
func process(b *testing.B, role, engine string) (address string, pid int) {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), benchRole+"="+role, benchEngine+"="+engine, "GOMAXPROCS=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(line), cmd.Process.Pid
}

// cpuSeconds is the CPU time of a process so far, in Linux's ticks of 10 ms; 0 where it cannot be read.
func cpuSeconds(pid int) float64 {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100
}

type load struct {
	name, path, body string
	tokens           int
}

var loads = []load{
	{"small", "/v1/completions", `{"model":"policy","prompt":` + benchPrompt +
		`,"max_tokens":16,"logprobs":0,"return_token_ids":true}`, 16},
	{"stream_256", "/v1/completions", `{"model":"policy","prompt":` + benchPrompt +
		`,"max_tokens":256,"stream":true,"logprobs":0,"return_token_ids":true}`, 256},
	{"stream_256_text", "/v1/completions", `{"model":"policy","prompt":` + benchPrompt +
		`,"max_tokens":256,"stream":true}`, 256},
	{"generate_small", "/generate", `{"prompt":{"prompt_token_ids":` + benchPrompt +
		`},"logprobs":0,"n":1,"max_tokens":16}`, 16},
	{"generate_group_8x256", "/generate", `{"prompt":{"prompt_token_ids":` + benchPrompt +
		`},"logprobs":0,"n":8,"max_tokens":256}`, 8 * 256},
	{"generate_group_8x256_by_ones", "/generate", `{"prompt":{"prompt_token_ids":` + benchPrompt +
		`},"logprobs":0,"n":8,"max_tokens":256,"user":"old"}`, 8 * 256},
}

// BenchmarkThroughput keeps 32 requests in flight and reports how many the gateway answers in a second of its own CPU
// time, beside the standard library's reverse proxy (floor) where that can do the same. The role pieces is a gateway
// that makes answers from streams: 8 tokens in an event, or one.
func BenchmarkThroughput(b *testing.B) {
	for _, l := range loads {
		roles := []string{"floor", "gateway"}
		switch {
		case strings.HasSuffix(l.name, "by_ones"):
			roles = []string{"pieces"}
		case l.tokens > 256:
			roles = []string{"gateway", "pieces"}
		case l.path == "/generate":
			roles = []string{"gateway"}
		}
		for _, role := range roles {
			b.Run(l.name+"/"+role, func(b *testing.B) { throughput(b, l, role) })
		}
	}
}

func throughput(b *testing.B, l load, role string) {
	engine, _ := process(b, "engine", "")
	gate, pid := process(b, role, engine)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer client.CloseIdleConnections()
	one(b, client, gate+l.path, l.body)
	var left atomic.Int64
	left.Store(int64(b.N))
	before := cpuSeconds(pid)
	b.ResetTimer()
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				one(b, client, gate+l.path, l.body)
			}
		})
	}
	wg.Wait()
	if cpu := cpuSeconds(pid) - before; cpu > 0 {
		b.ReportMetric(float64(b.N)/cpu, "req/cpu-s")
		b.ReportMetric(float64(b.N*l.tokens)/cpu, "tok/cpu-s")
	}
}

// BenchmarkLatency sends one request at a time, alternately to the engine and through the gateway.
func BenchmarkLatency(b *testing.B) {
	for _, l := range loads[:1] {
		b.Run(l.name, func(b *testing.B) {
			engine, _ := process(b, "engine", "")
			gate, _ := process(b, "gateway", engine)
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			var direct, through []time.Duration
			for range 50 {
				one(b, client, engine+l.path, l.body)
				one(b, client, gate+l.path, l.body)
			}
			for b.Loop() {
				direct = append(direct, one(b, client, engine+l.path, l.body))
				through = append(through, one(b, client, gate+l.path, l.body))
			}
			slices.Sort(direct)
			slices.Sort(through)
			at := func(d []time.Duration, q float64) float64 { return float64(d[int(q*float64(len(d)-1))].Microseconds()) }
			b.ReportMetric(at(direct, .5), "direct-p50-µs")
			b.ReportMetric(at(through, .5), "gateway-p50-µs")
			b.ReportMetric(at(through, .5)-at(direct, .5), "added-p50-µs")
			b.ReportMetric(at(through, .99)-at(direct, .99), "added-p99-µs")
		})
	}
}

func one(b *testing.B, client *http.Client, address, body string) time.Duration {
	start := time.Now()
	req, err := http.NewRequest(http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		b.Error(err)
		return 0
	}
	req.Header.Set("Authorization", "Bearer "+dataToken)
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		b.Error(err)
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		b.Errorf("status %d, %d bytes, %v", resp.StatusCode, len(got), err)
	}
	if strings.Contains(body, "stream") && !bytes.HasSuffix(got, []byte("[DONE]\n\n")) {
		b.Errorf("the stream ends with %q", got[max(0, len(got)-200):])
	}
	return time.Since(start)
}

// BenchmarkTranslate is the translation of one group's answer alone.
func BenchmarkTranslate(b *testing.B) {
	q, err := translateRequest([]byte(loads[4].body), "policy")
	if err != nil {
		b.Fatal(err)
	}
	answer := benchAnswer(8, 256)
	b.SetBytes(int64(len(answer)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := translateResponse(q, readCompletion(gjson.ParseBytes(answer), q.shape())); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkGather is the conversion of one group's stream to an answer alone.
func BenchmarkGather(b *testing.B) {
	q, err := translateRequest([]byte(loads[4].body), "policy")
	if err != nil {
		b.Fatal(err)
	}
	for _, per := range []int{8, 1} {
		b.Run(strconv.Itoa(per), func(b *testing.B) {
			stream := []byte("data: " + strings.Join(benchEvents(8, 256, per), "\n\ndata: ") + "\n\n")
			b.ReportAllocs()
			for b.Loop() {
				t := &streamRecorder{choices: map[int]*recordedChoice{}, full: true, gather: true, limit: 1 << 20}
				for rest := stream; len(rest) > 0; {
					n := min(4096, len(rest))
					t.write(rest[:n])
					rest = rest[n:]
				}
				if _, err := translateResponse(q, t.completion()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkUpdate is the gateway's own part in a weight update, driven over HTTP as by a sync block: hold, an update
// that does nothing, version raised, requests forwarded again.
func BenchmarkUpdate(b *testing.B) {
	g := start(b, Config{Update: func(context.Context, []Replica, WeightUpdate) error { return nil }},
		newEngine(b), newEngine(b))
	c := NewClient(g.URL(), adminToken)
	b.Cleanup(c.Close)
	version := 0
	for b.Loop() {
		version++
		if _, err := c.UpdateWeights(context.Background(),
			WeightUpdate{Weights: sdk.Weights{Version: int64(version)}}); err != nil {
			b.Fatal(err)
		}
	}
}
