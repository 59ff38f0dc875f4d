package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(benchRole); role != "" {
		playRole(role)
		return
	}
	goleak.VerifyTestMain(m)
}

// fakeEngine stands for vLLM: it answers in vLLM's formats and can be made to wait, fail, or exit.
type fakeEngine struct {
	*httptest.Server
	mu       sync.Mutex
	requests []fakeRequest
	before   func(r *http.Request) // called before answering
	respond  http.HandlerFunc      // replaces the answer
}

type fakeRequest struct {
	path, auth string
	header     http.Header
	body       string
	query      string
}

func newEngine(t testing.TB) *fakeEngine {
	e := &fakeEngine{}
	e.Server = httptest.NewServer(e)
	t.Cleanup(e.Close)
	return e
}

func (e *fakeEngine) set(before func(*http.Request), respond http.HandlerFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.before, e.respond = before, respond
}

func (e *fakeEngine) seen() []fakeRequest {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]fakeRequest(nil), e.requests...)
}

func (e *fakeEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	e.mu.Lock()
	e.requests = append(e.requests, fakeRequest{r.URL.Path, r.Header.Get("Authorization"), r.Header.Clone(), string(body),
		r.URL.RawQuery})
	before, respond := e.before, e.respond
	e.mu.Unlock()
	if before != nil {
		before(r)
	}
	if respond != nil {
		r.Body = io.NopCloser(bytes.NewReader(body))
		respond(w, r)
		return
	}
	fakeAnswer(w, body)
}

// fakeAnswer is what vLLM 0.32 answers to /v1/completions: choice i has the tokens 10+i, 20+i, 2.
func fakeAnswer(w http.ResponseWriter, body []byte) {
	var q struct {
		N      int             `json:"n"`
		Prompt json.RawMessage `json:"prompt"`
		PLP    *int            `json:"prompt_logprobs"`
	}
	if err := json.Unmarshal(body, &q); err != nil {
		http.Error(w, `{"error":{"message":"not JSON"}}`, http.StatusBadRequest)
		return
	}
	prompt := "[1,2,3]"
	if strings.HasPrefix(string(q.Prompt), "[") {
		prompt = string(q.Prompt)
	}
	var choices []string
	for i := range max(1, q.N) {
		plp := "null"
		if q.PLP != nil {
			plp = fakePromptLogprobs(prompt)
		}
		choices = append(choices, fmt.Sprintf(`{"index":%d,"text":"a%d","logprobs":{"text_offset":[0,1,2],"token_logprobs":[-0.5,-0.25,-0.125],"tokens":["token_id:%d","token_id:%d","token_id:2"],"top_logprobs":[{"token_id:%d":-0.5},{"token_id:%d":-0.25},{"token_id:2":-0.125}]},"finish_reason":"stop","stop_reason":null,"token_ids":[%d,%d,2],"prompt_logprobs":%s,"prompt_token_ids":%s}`,
			i, i, 10+i, 20+i, 10+i, 20+i, 10+i, 20+i, plp, prompt))
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"id":"cmpl-1","object":"text_completion","created":1,"model":"m","choices":[%s],"service_tier":null,"usage":{"prompt_tokens":3,"total_tokens":6,"completion_tokens":%d}}`, strings.Join(choices, ","), 3*len(choices))
}

func fakePromptLogprobs(prompt string) string {
	var ids []int
	_ = json.Unmarshal([]byte(prompt), &ids)
	out := []string{"null"}
	for i, id := range ids[1:] {
		out = append(out, fmt.Sprintf(`{"%d":{"logprob":-%d.5,"rank":1,"decoded_token":"x"}}`, id, i+1))
	}
	return "[" + strings.Join(out, ",") + "]"
}

// fakeClock moves only by advance.
type fakeClock struct {
	mu     sync.Mutex
	now    time.Time
	timers []*fakeTimer
}

type fakeTimer struct {
	at time.Time
	f  func()
}

func newClock() *fakeClock { return &fakeClock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) AfterFunc(d time.Duration, f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &fakeTimer{c.now.Add(d), f}
	c.timers = append(c.timers, t)
	return func() bool { return c.remove(t) }
}

func (c *fakeClock) remove(t *fakeTimer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.timers {
		if c.timers[i] == t {
			c.timers = append(c.timers[:i], c.timers[i+1:]...)
			return true
		}
	}
	return false
}

// pending is the number of timers that have not fired.
func (c *fakeClock) pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.timers)
}

// advance moves the clock and runs the timers that are due before it returns.
func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	c.now = c.now.Add(d)
	var due []*fakeTimer
	for _, t := range c.timers {
		if !t.at.After(c.now) {
			due = append(due, t)
		}
	}
	c.mu.Unlock()
	for _, t := range due {
		if c.remove(t) {
			t.f()
		}
	}
}

// events collects a gateway's events.
type events struct {
	mu   sync.Mutex
	list []Event
}

func (e *events) add(ev Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, ev)
}

func (e *events) count(kind EventKind) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, ev := range e.list {
		if ev.Kind == kind {
			n++
		}
	}
	return n
}

const (
	dataToken  = "data-token"
	adminToken = "admin-token"
)

// each makes an Update function of one that loads weights into one replica.
func each(load func(context.Context, Replica, WeightUpdate) error) func(context.Context,
	[]Replica, WeightUpdate) error {
	return func(ctx context.Context, replicas []Replica, u WeightUpdate) error {
		failed := ReplicaErrors{}
		for _, r := range replicas {
			if err := load(ctx, r, u); err != nil {
				failed[r.ID] = err
			}
		}
		if len(failed) == 0 {
			return nil
		}
		return failed
	}
}

// start runs a gateway in front of the engines, each admitted at the configured version.
func start(t testing.TB, cfg Config, engines ...*fakeEngine) *Gateway {
	t.Helper()
	cfg.Address, cfg.Token, cfg.AdminToken = "127.0.0.1:0", dataToken, adminToken
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	g.SetModels("policy")
	served := make(chan error, 1)
	go func() { served <- g.Serve(context.Background()) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	var list []Replica
	for i, e := range engines {
		list = append(list, Replica{ID: fmt.Sprint(i), URL: e.URL, APIKey: "engine-key"})
	}
	if err := g.SetReplicas(list); err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		if err := g.Admit(context.Background(), r.ID, cfg.Version); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

type reply struct {
	status  int
	header  http.Header
	trailer http.Header
	body    string
}

// post sends a request with the data token.
func post(t testing.TB, g *Gateway, path, body string) reply {
	t.Helper()
	r, err := send(context.Background(), g, path, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func send(ctx context.Context, g *Gateway, path, body string) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.URL()+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Authorization", "Bearer "+dataToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, resp.Trailer, string(b)}, err
}

// eventually waits for a condition that another goroutine causes.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited 20 s for: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}
