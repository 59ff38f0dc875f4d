package gateway

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/recipe-rl/recipe/sdk"
)

// The versions that an engine reports replace those that the gateway assumes.
func TestEnginesOwnVersionWins(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	g := start(t, Config{Version: 9}, e)
	tests := []struct{ fields, low, high string }{
		{`"policy_version":7,`, "7", "7"},
		{`"policy_version":7,"policy_version_max":8,`, "7", "8"},
		{`"policy_version":"x",`, "9", "9"},
		{`"policy_version":-1,`, "9", "9"},
	}
	for _, tc := range tests {
		e.set(nil, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{`+tc.fields+`"choices":[{"index":0,"text":"a","token_ids":[4],"logprobs":{"token_logprobs":[-1]}}]}`)
		})
		for _, path := range []string{"/v1/completions", "/generate"} {
			r := post(t, g, path, `{"prompt":[1],"logprobs":0}`)
			if low, high := r.header.Get(HeaderVersion), r.header.Get(HeaderVersionMax); r.status != 200 || low != tc.low ||
				high != tc.high || !gjson.Valid(r.body) {
				t.Errorf("%s with %s: %d, versions %s to %s, %s; want %s to %s", path, tc.fields, r.status, low, high,
					r.body, tc.low, tc.high)
			}
		}
	}
}

// Chat answers carry the prompt's ids at the top, and log-probabilities beside each token.
func TestChatIsRecorded(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	g := start(t, Config{}, e)
	for name, choice := range map[string]string{
		"ids":   `"token_ids":[8,9],"logprobs":{"content":[{"token":"a","logprob":-1.5,"top_logprobs":[]},{"token":"b","logprob":-2}]}`,
		"names": `"logprobs":{"content":[{"token":"token_id:8","logprob":-1.5},{"token":"token_id:9","logprob":-2}]}`,
	} {
		e.set(nil, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"ab"},`+choice+
				`}],"prompt_token_ids":[`+itoa(len(name))+`,6]}`)
		})
		post(t, g, "/v1/chat/completions", `{"messages":[]}`)
		if rec, found, _ := g.Lookup([]int{len(name), 6, 8, 9}); !found || rec.Logprobs[0] != -1.5 {
			t.Errorf("%s: %+v, found %v", name, rec, found)
		}
	}
	e.set(nil, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"choices":[{"index":0,"token_ids":[3],"logprobs":{"content":[{"token":"a","logprob":null}]}}],"prompt_token_ids":[3]}`)
	})
	if r := post(t, g, "/v1/chat/completions", `{"messages":[]}`); r.status != 200 {
		t.Errorf("an answer that cannot be recorded got %d, want it passed on", r.status)
	}
	if _, found, _ := g.Lookup([]int{3, 3}); found {
		t.Error("a completion without a log-probability was recorded")
	}
}

func itoa(n int) string { return string(rune('0' + n)) }

func TestGenerateWhenTheEngineRefuses(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	g := start(t, Config{MaxResponseBytes: 500}, e)
	tests := []struct {
		name, body string
		status     int
		want       int
		says       string
	}{
		{"its own refusal is passed on", `{"error":{"message":"maximum context length"}}`, 400, 400,
			"maximum context length"},
		{"an answer with a hole", `{"choices":[{"token_ids":[1,2],"logprobs":{"token_logprobs":[-1]}}]}`,
			200, 502, "2 tokens but 1"},
		{"too long", `{"choices":"` + strings.Repeat("x", 1000) + `"}`, 200, 502, "fewer tokens"},
		{"no JSON", `Internal Server Error`, 200, 502, "no choices"},
	}
	for _, tc := range tests {
		e.set(nil, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tc.status)
			_, _ = io.WriteString(w, tc.body)
		})
		if r := post(t, g, "/generate", `{"prompt":[1],"logprobs":0}`); r.status != tc.want ||
			!strings.Contains(r.body, tc.says) {
			t.Errorf("%s: %d %s, want %d with %q", tc.name, r.status, r.body, tc.want, tc.says)
		}
	}
	if s := g.Status(); s.InFlight != 0 {
		t.Errorf("%d requests still counted in flight", s.InFlight)
	}
}

func TestBodiesWithoutLength(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	g := start(t, Config{MaxBodyBytes: 1000}, e)
	for size, want := range map[int]int{10: 200, 5000: 413} {
		body := io.MultiReader(strings.NewReader(`{"prompt":"`), bytes.NewReader(bytes.Repeat([]byte("x"), size)),
			strings.NewReader(`"}`))
		req, _ := http.NewRequest(http.MethodPost, g.URL()+"/v1/completions", body)
		req.Header.Set("Authorization", "Bearer "+dataToken)
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("a body of about %d bytes in chunks got %d, want %d", size, resp.StatusCode, want)
		}
	}
}

func TestControlRefuses(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	g := start(t, Config{}, e) // without Update
	tests := []struct {
		method, route, body string
		want                int
		says                string
	}{
		{"GET", "hold", ``, 405, "takes POST"},
		{"POST", "nothing", ``, 404, "there are"},
		{"POST", "hold", `{"mode":"magic"}`, 422, "magic"},
		{"POST", "hold", `{"mode":"none"}`, 422, "want"},
		{"POST", "hold", `{"lease_seconds":1e9}`, 422, "lease"},
		{"POST", "hold", `{"drain_seconds":-1}`, 422, "drain"},
		{"POST", "hold", `{"mode":7}`, 400, "body"},
		{"POST", "resume", `{}`, 409, "not held"},
		{"POST", "version", `{}`, 400, "missing"},
		{"POST", "version", `{"version":-1}`, 422, "0 or more"},
		{"POST", "weights", `{"version":1}`, 422, "Config.Update"},
		{"POST", "logprobs", `{"token_ids":[1]}`, 422, "at least 2"},
		{"POST", "replica", `{"id":"0"}`, 400, "missing"},
		{"POST", "admit", `{"id":"9"}`, 422, "no replica"},
		{"POST", "lookup", `{"tokens":[-1]}`, 200, `"found":false`},
	}
	for _, tc := range tests {
		req, _ := http.NewRequest(tc.method, g.URL()+"/recipe/v1/"+tc.route, strings.NewReader(tc.body))
		req.Header.Set("Authorization", "Bearer "+adminToken)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != tc.want || !strings.Contains(string(b), tc.says) {
			t.Errorf("%s %s %s: %d %s, want %d with %q", tc.method, tc.route, tc.body, resp.StatusCode, b, tc.want, tc.says)
		}
	}
	if g.Status().Held {
		t.Error("a refused hold holds")
	}
}

func TestUpdateRefuses(t *testing.T) {
	t.Parallel()
	g := start(t, Config{Version: 2, Update: func(context.Context, []Replica, WeightUpdate) error { return nil }},
		newEngine(t))
	tests := []struct {
		u    WeightUpdate
		says string
	}{
		{WeightUpdate{Weights: sdk.Weights{Version: 1}}, "rollback"},
		{WeightUpdate{Weights: sdk.Weights{Version: -1}, Rollback: true}, "0 or more"},
		{WeightUpdate{Weights: sdk.Weights{Version: 3}, Mode: "magic"}, "magic"},
		{WeightUpdate{Weights: sdk.Weights{Version: 3}, Hold: "gone"}, "not held"},
		{WeightUpdate{Weights: sdk.Weights{Version: 3}, Check: &Check{Tokens: []int{1}, Logprobs: []float64{0},
			Tolerance: 1}}, "at least 2"},
		{WeightUpdate{Weights: sdk.Weights{Version: 3}, Check: &Check{Tokens: []int{1, 2}, Logprobs: []float64{0, -1}}},
			"tolerance"},
	}
	for _, tc := range tests {
		if _, err := g.UpdateWeights(context.Background(), tc.u); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%+v: %v, want something about %q", tc.u, err, tc.says)
		}
	}
	if s := g.Status(); s.Version != 2 || s.Held || !s.Replicas[0].Ready {
		t.Errorf("after refusals: %+v", s)
	}
}

// A restarted gateway listens on the same address, and clients need no change.
func TestSameAddressAfterRestart(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	_ = ln.Close()
	for life := range 2 {
		g, err := New(Config{Address: address, Version: life})
		if err != nil && life == 0 {
			t.Skipf("somebody else took the free port first: %v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- g.Serve(ctx) }()
		resp, err := http.Get("http://" + address + "/health")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		cancel() // as when the process is asked to end
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		closing, done := context.WithTimeout(context.Background(), 5*time.Second)
		if err := g.Close(closing); err != nil {
			t.Errorf("Close after Serve: %v", err)
		}
		done()
	}
}

func TestReplicasAreChecked(t *testing.T) {
	t.Parallel()
	g := start(t, Config{}, newEngine(t))
	for _, list := range [][]Replica{
		{{ID: "", URL: "http://127.0.0.1:1"}},
		{{ID: "a", URL: "http://127.0.0.1:1"}, {ID: "a", URL: "http://127.0.0.1:2"}},
		{{ID: "a", URL: "127.0.0.1:1"}},
		{{ID: "a", URL: "ftp://127.0.0.1:1"}},
		{{ID: "a", URL: "http://[::1"}},
	} {
		if err := g.SetReplicas(list); err == nil {
			t.Errorf("%+v was taken", list)
		}
	}
	if s := g.Status(); len(s.Replicas) != 1 || !s.Replicas[0].Ready {
		t.Errorf("a refused set replaced the old one: %+v", s.Replicas)
	}
}

// An endless list of models must not count as a request in flight for ever: every weight update would wait for it.
func TestAnEndlessListOfModelsIsCutOff(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	g := start(t, Config{MaxResponseBytes: 100}, e)
	for name, answer := range map[string]http.HandlerFunc{
		"a stream": func(w http.ResponseWriter, _ *http.Request) { sendEvents(w, "{}") },
		"too long": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"data":"`+strings.Repeat("x", 1000)+`"}`)
		},
	} {
		e.set(nil, answer)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.URL()+"/v1/models", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+dataToken)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if gjson.GetBytes(b, "data.0.id").Str != "policy" || g.Status().InFlight != 0 {
			t.Errorf("%s: %s, %d requests in flight", name, b, g.Status().InFlight)
		}
	}
}

// Clients choose the names by which they are distinguished; the names are kept, so their length is bounded.
func TestLongNamesOfClientsAreCut(t *testing.T) {
	t.Parallel()
	g := start(t, Config{}, newEngine(t))
	long := strings.Repeat("é", maxClientName)
	post(t, g, "/c/"+long+"/v1/completions", prompt)
	post(t, g, "/c/"+long+"x/v1/completions", prompt)
	for name, c := range g.Status().Clients {
		if len(name) > maxClientName || c.Requests != 2 {
			t.Errorf("%d bytes: %+v", len(name), c)
		}
	}
}
