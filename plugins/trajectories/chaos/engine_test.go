package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/sdk"
)

// Token ids of the engine: bytes of texts are 100 to 355, what it samples is firstSampled and above.
const (
	endOfTurn    = 9
	firstSampled = 1000
	engineRoom   = 1 << 20 // max_model_len
)

// exchange is one answer of the engine: what it had received, and what it sampled.
type exchange struct {
	number   int // of the program's call
	prompt   []int
	output   []int
	logprobs []float64
	version  int64
	forced   bool // a grammar narrowed what could be sampled
	lost     bool // the engine died before it had sent all of it
	at       time.Time
}

// engine is an inference server whose sampled tokens are each another one, so that each tells where it comes from. It
// can die and come back; what it remembers is the test's.
type engine struct {
	t    *testing.T
	port int
	one  sync.Mutex // restarts

	mu      sync.Mutex
	server  *http.Server
	next    int
	version int64
	answers map[int]*exchange // by the first sampled token
	calls   map[int]*call     // by number
}

func newEngine(t *testing.T) *engine {
	e := &engine{t: t, port: steadyPort(t), next: firstSampled, answers: map[int]*exchange{}, calls: map[int]*call{}}
	e.start()
	t.Cleanup(func() { e.mu.Lock(); defer e.mu.Unlock(); _ = e.server.Close() })
	return e
}

func (e *engine) url() string { return fmt.Sprintf("http://127.0.0.1:%d", e.port) }

func (e *engine) start() {
	var ln net.Listener
	var err error
	address := fmt.Sprintf("127.0.0.1:%d", e.port)
	for range 100 {
		if ln, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", address); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		e.t.Error(err)
		return
	}
	server := &http.Server{Handler: e, ReadHeaderTimeout: time.Minute}
	e.mu.Lock()
	e.server = server
	e.mu.Unlock()
	go func() { _ = server.Serve(ln) }()
}

// restart closes every connection, as the death of a process does.
func (e *engine) restart() {
	e.one.Lock()
	defer e.one.Unlock()
	e.mu.Lock()
	old := e.server
	e.mu.Unlock()
	_ = old.Close()
	e.start()
}

func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	root := gjson.ParseBytes(body)
	switch r.URL.Path {
	case "/version":
		e.mu.Lock()
		defer e.mu.Unlock()
		if r.Method == http.MethodPost {
			e.version = root.Int()
		}
		_, _ = fmt.Fprint(w, e.version)
	case "/tokenize":
		reply(w, map[string]any{"tokens": render(root), "max_model_len": engineRoom})
	case "/v1/completions":
		e.complete(w, r, root)
	default:
		http.Error(w, `{"error":{"message":"no such route"}}`, http.StatusNotFound)
	}
}

func reply(w io.Writer, v any) { _ = json.NewEncoder(w).Encode(v) }

// render is a chat template: tools, then of each message its role, its texts and calls as bytes, and an end.
func render(q gjson.Result) []int {
	var ids []int
	add := func(text string) {
		for _, b := range []byte(text) {
			ids = append(ids, int(b)+100)
		}
	}
	add(q.Get("tools").Raw)
	for _, m := range q.Get("messages").Array() {
		ids = append(ids, 1+slices.Index([]string{"system", "user", "assistant", "tool"}, m.Get("role").Str))
		add(m.Get("content").Str)
		for _, part := range m.Get("content").Array() {
			add(part.Get("text").Str)
		}
		for _, c := range m.Get("tool_calls.#.function").Array() {
			add(c.Raw)
		}
		ids = append(ids, endOfTurn)
	}
	return append(ids, 3) // the assistant's turn
}

// complete samples an answer to a call, unless something happens before. The program's limit of tokens names the call.
func (e *engine) complete(w http.ResponseWriter, r *http.Request, q gjson.Result) {
	e.mu.Lock()
	c := e.calls[int(q.Get("max_tokens").Int())]
	e.mu.Unlock()
	if c == nil {
		e.t.Errorf("the engine was asked for %s tokens, which no call asks for", q.Get("max_tokens").Raw)
		return
	}
	if c.meets(r.Context()) {
		panic(http.ErrAbortHandler)
	}
	x, text := e.sample(q, c)
	finish := "stop"
	if c.shape == cut {
		finish = "length"
	}
	out, _ := json.Marshal(map[string]any{"choices": []any{map[string]any{"index": 0, "text": text,
		"finish_reason": finish, "token_ids": x.output, "logprobs": map[string]any{"token_logprobs": x.logprobs}}},
		"usage": map[string]any{"completion_tokens": len(x.output)}})
	if x.lost {
		_, _ = w.Write(out[:len(out)/2])
		_ = http.NewResponseController(w).Flush()
		e.restart()
		panic(http.ErrAbortHandler)
	}
	c.answered()
	_, _ = w.Write(out)
}

// sample makes an answer that no other is like.
func (e *engine) sample(q gjson.Result, c *call) (*exchange, string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := &exchange{number: c.number, version: e.version, forced: c.forced, at: time.Now()}
	c.world.mu.Lock()
	if c.fate == engineMidway {
		x.lost, c.fate = true, nothing // when it is asked again
	}
	c.world.mu.Unlock()
	for _, id := range q.Get("prompt").Array() {
		x.prompt = append(x.prompt, int(id.Int()))
	}
	first := e.next
	for range 1 + first%4 {
		x.output, x.logprobs = append(x.output, e.next), append(x.logprobs, -float64(e.next%64)/64)
		e.next++
	}
	if c.shape != cut {
		x.output, x.logprobs = append(x.output, endOfTurn), append(x.logprobs, -0.125)
	}
	e.answers[first] = x
	add := fmt.Sprintf(`{"name": "add", "arguments": {"n": %d, "with": ["a", {"b": 1}]}}`, first)
	more := fmt.Sprintf(`{"name": "look", "arguments": {"also": %d}}`, first)
	switch {
	case c.forced:
		return x, add
	case c.shape == oneCall:
		return x, "let me see <tool_call>\n" + add + "\n</tool_call>"
	case c.shape == twoCalls:
		return x, "<tool_call>" + add + "</tool_call>\n<tool_call>" + more + "</tool_call>"
	}
	return x, fmt.Sprintf("said %d", first)
}

// sampled is when an answer was sampled.
func (e *engine) sampled(first int) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.answers[first]; x != nil {
		return x.at
	}
	return time.Now()
}

// Environment variables that make a copy of this test binary a gateway.
const (
	gatewayPort   = "CHAOS_GATEWAY_PORT"
	gatewayEngine = "CHAOS_GATEWAY_ENGINE"
	gatewayFolder = "CHAOS_GATEWAY_FOLDER"
	gatewayKey    = "key-of-the-block"
	gatewayAdmin  = "key-of-the-engine"
)

// gatewayMain is the gateway's process. New weights come all the time.
func gatewayMain() error {
	engine, ctx := os.Getenv(gatewayEngine), context.Background()
	version, err := engineVersion(http.MethodGet, engine, 0)
	if err != nil {
		return err
	}
	g, err := gateway.New(gateway.Config{Address: "127.0.0.1:" + os.Getenv(gatewayPort), Token: gatewayKey,
		AdminToken: gatewayAdmin, Sessions: os.Getenv(gatewayFolder), Version: int(version),
		Cooldown: 20 * time.Millisecond,
		Update: func(_ context.Context, _ []gateway.Replica, u gateway.WeightUpdate) error {
			_, err := engineVersion(http.MethodPost, engine, u.Version)
			return err
		}})
	if err != nil {
		return err
	}
	g.SetModels("policy")
	if err := g.SetReplicas([]gateway.Replica{{ID: "0", URL: engine}}); err != nil {
		return err
	}
	if err := g.Admit(ctx, "0", int(version)); err != nil {
		return err
	}
	go func() {
		for {
			time.Sleep(40 * time.Millisecond)
			version++
			u := gateway.WeightUpdate{Weights: sdk.Weights{Version: version}, Mode: gateway.ModeDrain}
			_, err := g.UpdateWeights(ctx, u)
			for err != nil { // the engine was away
				time.Sleep(20 * time.Millisecond)
				var is int64
				if is, err = engineVersion(http.MethodGet, engine, 0); err == nil {
					err = g.Admit(ctx, "0", int(is))
				}
			}
		}
	}()
	return g.Serve(ctx)
}

// engineVersion reads or sets which weights the engine has; it may be dead for a moment.
func engineVersion(method, engine string, version int64) (is int64, err error) {
	for range 100 {
		var r *http.Request
		r, err = http.NewRequestWithContext(context.Background(), method, engine+"/version",
			strings.NewReader(fmt.Sprint(version)))
		if err != nil {
			return 0, err
		}
		var out *http.Response
		if out, err = http.DefaultClient.Do(r); err == nil {
			_, err = fmt.Fscan(out.Body, &is)
			_ = out.Body.Close()
			if err == nil {
				return is, nil
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	return 0, err
}

// killable is the gateway's process.
type killable struct {
	*server
	engine string
	one    sync.Mutex

	mu    sync.Mutex
	kills []time.Time
}

func newKillable(t *testing.T, e *engine) *killable {
	port := steadyPort(t)
	k := &killable{server: &server{t: t, dir: t.TempDir(), port: port, url: fmt.Sprintf("http://127.0.0.1:%d", port)},
		engine: e.url()}
	k.start()
	k.ready()
	t.Cleanup(k.kill)
	return k
}

func (k *killable) start() {
	k.cmd = exec.Command(os.Args[0])
	k.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", gatewayPort, k.port), gatewayEngine+"="+k.engine,
		gatewayFolder+"="+k.dir)
	k.cmd.Stderr = &k.err
	if err := k.cmd.Start(); err != nil {
		k.t.Error(err)
	}
}

func (k *killable) ready() {
	for range 1200 {
		if code, _, err := k.call(http.MethodGet, "/health", nil); err == nil && code == http.StatusOK {
			return
		}
		time.Sleep(25 * time.Millisecond)
	}
	k.t.Errorf("the gateway did not come back within 30 s: %s", k.err.String())
}

// restart kills the gateway and starts it again.
func (k *killable) restart() {
	k.one.Lock()
	defer k.one.Unlock()
	k.mu.Lock()
	k.kills = append(k.kills, time.Now())
	k.mu.Unlock()
	k.kill()
	k.start()
	k.ready()
}

// killed reports whether the gateway was killed in this time.
func (k *killable) killed(from, to time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.ContainsFunc(k.kills, func(at time.Time) bool { return at.After(from) && at.Before(to) })
}

// pause is a while in which anything may be half done.
func pause(r *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(most)))
}
