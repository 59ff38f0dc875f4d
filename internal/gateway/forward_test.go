package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

func TestFailover(t *testing.T) {
	t.Parallel()
	breakOff := func(w http.ResponseWriter, _ *http.Request) { // dies in the middle of its answer
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, `{"choices":[`)
		panic(http.ErrAbortHandler)
	}
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `{"error":{"message":"engine says no"}}`, code)
		}
	}
	var once atomic.Bool
	tests := []struct {
		name    string
		engines []http.HandlerFunc // nil answers normally
		want    int
		asked   []int // requests each engine got; -1 any
	}{
		{"breaks off", []http.HandlerFunc{breakOff, nil}, 200, []int{1, 1}},
		{"500", []http.HandlerFunc{status(500), nil}, 200, []int{1, 1}},
		{"503", []http.HandlerFunc{status(503), nil}, 200, []int{1, 1}},
		{"400 is the client's", []http.HandlerFunc{status(400), nil}, 400, []int{1, 0}},
		{"501 is the client's", []http.HandlerFunc{status(501), nil}, 501, []int{1, 0}},
		{"500 everywhere is passed on", []http.HandlerFunc{status(500), status(500)}, 500, []int{1, -1}},
		{"500 of the only one is tried twice", []http.HandlerFunc{status(500)}, 500, []int{2}},
		{"500 once", []http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) {
			if once.CompareAndSwap(false, true) {
				status(500)(w, r)
				return
			}
			_, _ = io.WriteString(w, `{"ok":true}`)
		}}, 200, []int{2}},
		{"all break off", []http.HandlerFunc{breakOff, breakOff}, 502, []int{-1, -1}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var list []*fakeEngine
			for _, respond := range tc.engines {
				e := newEngine(t)
				e.Config.ErrorLog = nil
				e.set(nil, respond)
				list = append(list, e)
			}
			g := start(t, Config{Cooldown: 4 * time.Millisecond}, list...)
			r := post(t, g, "/v1/completions", `{"prompt":"x"}`)
			if r.status != tc.want || !gjson.Valid(r.body) {
				t.Errorf("got %d %s, want %d", r.status, r.body, tc.want)
			}
			for i, e := range list {
				if n := len(e.seen()); tc.asked[i] >= 0 && n != tc.asked[i] {
					t.Errorf("engine %d got %d requests, want %d", i, n, tc.asked[i])
				}
			}
			if s := g.Status(); s.InFlight != 0 {
				t.Errorf("%d requests still counted in flight", s.InFlight)
			}
		})
	}
}

// While the only replica restarts, requests wait; none fails.
func TestRestartOfTheOnlyReplica(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	_ = ln.Close() // nothing listens
	g := start(t, Config{Cooldown: 2 * time.Millisecond})
	if err := g.SetReplicas([]Replica{{ID: "0", URL: "http://" + addr}}); err != nil {
		t.Fatal(err)
	}
	if err := g.Admit(context.Background(), "0", 0); err != nil {
		t.Fatal(err)
	}
	waiting := background(t, g, "/v1/completions", prompt)
	eventually(t, "some refused connections", func() bool { return g.Status().Replicas[0].Failures > 3 })
	if ln, err = net.Listen("tcp", addr); err != nil {
		t.Skipf("the port was taken meanwhile: %v", err)
	}
	e := &fakeEngine{}
	e.Server = &httptest.Server{Listener: ln, Config: &http.Server{Handler: e}}
	e.Start()
	defer e.Close()
	if r := <-waiting; r.status != 200 {
		t.Errorf("got %d %s", r.status, r.body)
	}
}

func TestNoReplicaTimesOutWithReasons(t *testing.T) {
	t.Parallel()
	clock := newClock()
	g := start(t, Config{Clock: clock, HoldTimeout: time.Minute}, newEngine(t))
	if err := g.SetReplicaHealthy("0", false, "CUDA out of memory"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get(g.URL() + "/health")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 503 {
		t.Errorf("/health is %d without a replica, want 503", resp.StatusCode)
	}
	waiting := background(t, g, "/v1/completions", prompt)
	eventually(t, "the request to wait", func() bool { return g.Status().Waiting == 1 })
	clock.advance(time.Minute)
	if r := <-waiting; r.status != 503 || !strings.Contains(r.body, "CUDA out of memory") {
		t.Errorf("got %d %s, want 503 with the reason", r.status, r.body)
	}
}

func TestClientGoneCancelsUpstream(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	g := start(t, Config{}, e)
	gone := make(chan struct{})
	entered := make(chan struct{})
	e.set(func(r *http.Request) { close(entered); <-r.Context().Done(); close(gone) }, nil)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { _, _ = send(ctx, g, "/v1/completions", prompt) }()
	<-entered
	cancel()
	select {
	case <-gone:
	case <-time.After(20 * time.Second):
		t.Fatal("the engine still works for a client that is gone")
	}
	eventually(t, "nothing in flight", func() bool { return g.Status().InFlight == 0 })
}

func TestBalance(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t), newEngine(t)
	g := start(t, Config{}, a, b)
	long := strings.Repeat("a common system prompt that is long enough to matter; ", 10)
	turns := `{"messages":[{"role":"user","content":"` + long + `tell me`
	for i := range 6 { // a conversation that grows
		turns += fmt.Sprintf(` and then number %d`, i)
		post(t, g, "/v1/chat/completions", turns+`"}]}`)
	}
	if na, nb := len(a.seen()), len(b.seen()); na*nb != 0 || na+nb != 6 {
		t.Errorf("a conversation was spread %d to %d, want it on one replica", na, nb)
	}
	for i := range 40 {
		post(t, g, "/v1/completions", fmt.Sprintf(`{"prompt":"%d is a prompt of its own"}`, i))
	}
	if na, nb := len(a.seen()), len(b.seen()); na < 20 || nb < 20 {
		t.Errorf("unrelated prompts were spread %d to %d, want about evenly", na, nb)
	}
}

func TestAffinityYieldsToLoad(t *testing.T) {
	t.Parallel()
	a, b := newEngine(t), newEngine(t)
	g := start(t, Config{}, a, b)
	var release []chan struct{}
	for _, e := range []*fakeEngine{a, b} {
		_, r := blocking(e)
		release = append(release, r)
	}
	var replies []chan reply
	for range 3 * prefixSlack {
		replies = append(replies, background(t, g, "/v1/completions", prompt))
	}
	eventually(t, "all at the engines", func() bool { return len(a.seen())+len(b.seen()) == 3*prefixSlack })
	if na, nb := len(a.seen()), len(b.seen()); na == 0 || nb == 0 || max(na, nb)-min(na, nb) > prefixSlack+1 {
		t.Errorf("one hot prompt was spread %d to %d, want a difference of at most %d", na, nb, prefixSlack+1)
	}
	for _, r := range release {
		close(r)
	}
	for _, r := range replies {
		<-r
	}
}

func TestLongAnswerPassesUnstamped(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	g := start(t, Config{MaxResponseBytes: 1000}, e)
	want := `{"x":"` + strings.Repeat("y", 100_000) + `"}`
	e.set(nil, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, want) })
	if r := post(t, g, "/v1/completions", `{"prompt":"x"}`); r.body != want || r.header.Get(HeaderVersion) != "0" {
		t.Errorf("got %d bytes, want %d as they were; header %v", len(r.body), len(want), r.header)
	}
}

func TestBodyLimit(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	g := start(t, Config{MaxBodyBytes: 100}, e)
	if r := post(t, g, "/v1/completions", `{"prompt":"`+strings.Repeat("x", 200)+`"}`); r.status != 413 ||
		len(e.seen()) != 0 {
		t.Errorf("got %d %s, want 413", r.status, r.body)
	}
}

func TestModels(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	g := start(t, Config{}, e)
	g.SetModels("org/policy")
	e.set(nil, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"from-engine"}]}`)
	})
	get := func() string {
		req, _ := http.NewRequest(http.MethodGet, g.URL()+"/v1/models", nil)
		req.Header.Set("Authorization", "Bearer "+dataToken)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		b, _ := io.ReadAll(resp.Body)
		return gjson.GetBytes(b, "data.0.id").Str
	}
	if id := get(); id != "from-engine" {
		t.Errorf("model %q, want the engine's", id)
	}
	if _, err := g.Hold(context.Background(), HoldRequest{}); err != nil {
		t.Fatal(err)
	}
	if id := get(); id != "org/policy" {
		t.Errorf("model %q during a hold, want the configured one at once", id)
	}
}

func TestTheModelNameIsAdded(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	g := start(t, Config{}, e)
	g.SetModels(`policy"v2`)
	post(t, g, "/v1/chat/completions", `{ "temperature":1, "model" : "org/policy", "messages":[{"role":"user","content":"the model"}]}`)
	post(t, g, "/generate", `{"prompt":[1]}`)
	for i, want := range []string{"org/policy", `policy"v2`} { // only a request of the gateway's own making has no name
		body := e.seen()[i].body
		if !gjson.Valid(body) || gjson.Get(body, "model").Str != want {
			t.Errorf("request %d: %s; want model %q", i, body, want)
		}
	}
}

// vLLM refuses n > 1 at temperature 0, and environments ask for it.
//
//docs:troubleshooting.md Greedy requests with n > 1, which vLLM refuses
func TestGreedyGroupIsAskedOnce(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	g := start(t, Config{}, e)
	tests := []struct {
		body    string
		askedN  int64
		choices int64
	}{
		{`{"n":16,"model":"policy","temperature":0.0,"prompt":[1]}`, 1, 16},
		{`{"model":"policy","temperature":0,"prompt":[1],"n": 2}`, 1, 2},
		{`{"model":"policy","temperature":0.5,"prompt":[1],"n":2}`, 2, 2},
		{`{"model":"policy","prompt":[1],"n":2}`, 2, 2},
		{`{"model":"policy","temperature":0,"prompt":[1]}`, 0, 1},
	}
	for i, tc := range tests {
		r := post(t, g, "/v1/completions", tc.body)
		asked := e.seen()[i].body
		if gjson.Get(asked, "n").Int() != tc.askedN || !gjson.Valid(asked) {
			t.Errorf("%s was asked as %s, want n %d", tc.body, asked, tc.askedN)
		}
		if !gjson.Valid(r.body) || gjson.Get(r.body, "choices.#").Int() != tc.choices {
			t.Errorf("%s got %s, want %d choices", tc.body, r.body, tc.choices)
		}
		for k := range tc.choices {
			ch := gjson.Get(r.body, fmt.Sprintf("choices.%d", k))
			if ch.Get("index").Int() != k || ch.Get("token_ids").Raw == "" {
				t.Errorf("%s: choice %d is %s", tc.body, k, ch.Raw)
			}
		}
	}
}
