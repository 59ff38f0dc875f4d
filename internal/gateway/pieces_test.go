package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/recipe-rl/recipe/sdk"
)

// oneChoice is a completion in an answer of vLLM.
type oneChoice struct {
	Index    int    `json:"index"`
	Text     string `json:"text"`
	Logprobs *struct {
		Offsets []int                        `json:"text_offset"`
		Values  []json.Number                `json:"token_logprobs"`
		Tokens  []string                     `json:"tokens"`
		Top     []map[string]json.RawMessage `json:"top_logprobs"`
	} `json:"logprobs"`
	Finish *string `json:"finish_reason"`
	Stop   any     `json:"stop_reason"`
	IDs    []int   `json:"token_ids"`
	Prompt []int   `json:"prompt_token_ids,omitempty"`
}

// cut converts an answer to the events of a stream as vLLM would send them, with one to three tokens in each.
func cut(t *testing.T, whole []byte, pieces *rand.Rand) []string {
	t.Helper()
	var answer struct {
		ID      string      `json:"id"`
		Choices []oneChoice `json:"choices"`
	}
	if err := json.Unmarshal(whole, &answer); err != nil {
		t.Fatal(err)
	}
	rest, first := answer.Choices, map[int]bool{}
	var events []string
	for len(rest) > 0 {
		i := pieces.IntN(len(rest))
		c := &rest[i]
		p, n := *c, 1+pieces.IntN(3)
		if first[c.Index] {
			p.Prompt = nil
		}
		first[c.Index] = true
		tokens := len(c.IDs)
		if c.Logprobs != nil {
			tokens = len(c.Logprobs.Tokens)
		}
		last := n >= tokens
		if !last {
			letters := []rune(c.Text)
			at := pieces.IntN(len(letters) + 1)
			p.Text, c.Text = string(letters[:at]), string(letters[at:])
			p.Finish, p.Stop = nil, nil
			if c.IDs != nil {
				p.IDs, c.IDs = c.IDs[:n], c.IDs[n:]
			}
			if c.Logprobs != nil {
				head, tail := *c.Logprobs, *c.Logprobs
				head.Values, tail.Values = head.Values[:n], tail.Values[n:]
				head.Tokens, tail.Tokens = head.Tokens[:n], tail.Tokens[n:]
				if len(head.Top) > 0 { // SGLang includes neither unless asked
					head.Top, tail.Top = head.Top[:n], tail.Top[n:]
				}
				if len(head.Offsets) > 0 {
					head.Offsets, tail.Offsets = head.Offsets[:n], tail.Offsets[n:]
				}
				p.Logprobs, c.Logprobs = &head, &tail
			}
		}
		if tokens > 0 { // vLLM leaves out an empty completion
			b, err := json.Marshal(map[string]any{"id": answer.ID, "object": "text_completion", "choices": []oneChoice{p}})
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, string(b))
		}
		if last {
			rest = append(rest[:i:i], rest[i+1:]...)
		}
	}
	return append(events, "[DONE]")
}

// either answers with a whole body, or with a stream if one is requested.
func either(whole []byte, events []string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !gjson.GetBytes(body, "stream").Bool() {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(whole)
			return
		}
		sendEvents(w, events...)
	}
}

func sendEvents(w http.ResponseWriter, events ...string) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	out := http.NewResponseController(w)
	for _, e := range events {
		_, _ = io.WriteString(w, "data: "+e+"\n\n")
		_ = out.Flush()
	}
}

// streams counts the requests for a stream that an engine received.
func (e *fakeEngine) streams() (n int) {
	for _, r := range e.seen() {
		if gjson.Get(r.body, "stream").Bool() {
			n++
		}
	}
	return n
}

// expecting is a gateway whose weight updates let requests in flight continue.
func expecting(t testing.TB, c Config, engines ...*fakeEngine) *Gateway {
	t.Helper()
	g := start(t, c, engines...)
	if err := g.ExpectUpdates(ModeKeep); err != nil {
		t.Fatal(err)
	}
	return g
}

// However an engine splits its stream, client and record get the same as without a stream.
func TestAnAnswerMadeFromAStreamIsTheSame(t *testing.T) {
	t.Parallel()
	cases, err := filepath.Glob("testdata/generate/*")
	if err != nil || len(cases) < 5 {
		t.Fatalf("found %d cases (%v)", len(cases), err)
	}
	for _, dir := range cases {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			request, err := os.ReadFile(filepath.Join(dir, "request.json"))
			if err != nil {
				t.Fatal(err)
			}
			whole, err := os.ReadFile(filepath.Join(dir, "engine.json"))
			if err != nil {
				t.Fatal(err)
			}
			e := newEngine(t)
			plain, g := start(t, Config{Version: 4}, e), expecting(t, Config{Version: 4}, e)
			for seed := range uint64(20) {
				e.set(nil, either(whole, cut(t, whole, rand.New(rand.NewPCG(seed, 1)))))
				want, got := post(t, plain, "/generate", string(request)), post(t, g, "/generate", string(request))
				if want.status != 200 || got.status != 200 || got.header.Get(HeaderVersionMax) != "4" {
					t.Fatalf("%d %s, in one piece %d %s", got.status, got.body, want.status, want.body)
				}
				sameJSON(t, fmt.Sprintf("put together, seed %d", seed), []byte(got.body), []byte(want.body))
				if t.Failed() {
					return
				}
			}
			if a, b := fmt.Sprint(known(plain)), fmt.Sprint(known(g)); a != b {
				t.Errorf("recorded %s\nin one piece %s", b, a)
			}
			// vLLM streams neither the log-probabilities of prompts nor completions without a token.
			if n, can := e.streams(), !gjson.GetBytes(request, "prompt_logprobs").Exists(); (n > 0) != can {
				t.Errorf("asked for %d streams, want some: %v", n, can)
			}
		})
	}
}

// known lists a gateway's records in their order.
func known(g *Gateway) (list []string) {
	for e := g.records.first; e != nil; e = e.next {
		list = append(list, fmt.Sprintf("%d %v %v %d-%d %v", e.PromptTokens, e.Output, e.Logprobs, e.Version,
			e.VersionMax, e.Versions))
	}
	return list
}

// atOnce connects a gateway to an engine by pipes without a buffer: what the engine has flushed, the gateway has read.
func atOnce(t *testing.T, g *Gateway, e *fakeEngine) {
	t.Helper()
	conns := make(chan net.Conn)
	ctx, cancel := context.WithCancel(context.Background())
	g.transport.DialContext = func(asking context.Context, _, _ string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		select {
		case conns <- theirs:
			return ours, nil
		case <-asking.Done():
			return nil, context.Cause(asking)
		}
	}
	server := &http.Server{Handler: e}
	served := make(chan struct{})
	go func() { _ = server.Serve(&pipes{conns, ctx, cancel}); close(served) }()
	t.Cleanup(func() { _ = server.Close(); <-served })
}

// pipes is a net.Listener of pipes.
type pipes struct {
	conns  chan net.Conn
	ctx    context.Context
	cancel context.CancelFunc
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.cancel(); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// An update comes while two completions are generated: client and record get each token's version, the older one if it
// is uncertain.
func TestGenerateAcrossAnUpdateHasTokenVersions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, request, at string }{
		{"atropos", `{"prompt":{"prompt_token_ids":[1,2]},"logprobs":0,"n":2,"max_tokens":9}`, "policy_versions.%d"},
		{"sglang", `{"input_ids":[1,2],"sampling_params":{"n":2,"max_new_tokens":9},"return_logprob":true}`,
			"%d.meta_info.policy_versions"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := newEngine(t)
			d := &sleepers{}
			config := d.config()
			config.Version = 2
			g := expecting(t, config, e)
			piece := func(index int, end string, ids ...int) string {
				text, _ := json.Marshal(ids)
				return fmt.Sprintf(`{"id":"x","choices":[{"index":%d,"text":"w","token_ids":%s,"logprobs":{"token_logprobs":%s},"finish_reason":%s}]}`, index, text, text, end)
			}
			atOnce(t, g, e)
			next := switching(e, piece(0, "null", 10), piece(1, "null", 20), piece(0, "null", 11), piece(0, `"stop"`, 12, 13),
				piece(1, `"length"`, 21))
			got := background(t, g, "/generate", c.request)
			next <- struct{}{} // the second piece of five
			next <- struct{}{}
			if _, err := g.UpdateWeights(t.Context(), WeightUpdate{Weights: sdk.Weights{Version: 3},
				Mode: ModeKeep}); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				next <- struct{}{}
			}
			r := <-got
			first, second := gjson.Get(r.body, fmt.Sprintf(c.at, 0)).Raw, gjson.Get(r.body, fmt.Sprintf(c.at, 1)).Raw
			if first == "" || second == "" || r.header.Get(HeaderVersion) != "2" || r.header.Get(HeaderVersionMax) != "3" {
				t.Fatalf("%d %v %s", r.status, r.header, r.body)
			}
			var spans [2][]VersionSpan
			_ = json.Unmarshal([]byte(first), &spans[0])
			_ = json.Unmarshal([]byte(second), &spans[1])
			if !tile(spans[0], 4) || !tile(spans[1], 2) || spans[0][0].Version != 2 || spans[1][0].Version != 2 ||
				spans[1][len(spans[1])-1].Version != 3 {
				t.Errorf("versions %s and %s", first, second)
			}
			rec, found, _ := g.Lookup([]int{1, 2, 20, 21})
			if !found || rec.Version != 2 || rec.VersionMax != 3 || fmt.Sprint(rec.Versions) != fmt.Sprint(spans[1]) {
				t.Errorf("recorded %+v", rec)
			}
		})
	}
}

// Streams behind /generate cost time, so they are used only if an answer may span an update.
func TestStreamsAreUsedOnlyWhenAnswersMaySpanUpdates(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	answer, _ := os.ReadFile("testdata/generate/atropos_group/engine.json")
	request, _ := os.ReadFile("testdata/generate/atropos_group/request.json")
	e.set(nil, either(answer, cut(t, answer, rand.New(rand.NewPCG(1, 1)))))
	d := &sleepers{}
	config := d.config()
	g := start(t, config, e)
	client := NewClient(g.URL(), adminToken)
	defer client.Close()
	asks := func(what string, want bool) {
		t.Helper()
		before := e.streams()
		if r := post(t, g, "/generate", string(request)); r.status != 200 {
			t.Fatalf("%s: %d %s", what, r.status, r.body)
		}
		if got := e.streams() > before; got != want {
			t.Errorf("%s: asked for a stream: %v, want %v", what, got, want)
		}
		post(t, g, "/v1/completions", string(e.seen()[0].body))
		if e.streams() > before+1 {
			t.Errorf("%s: a stream behind /v1/completions", what)
		}
	}
	version := 0
	update := func(u WeightUpdate) {
		t.Helper()
		version++
		u.Version = int64(version)
		if _, err := client.UpdateWeights(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	asks("at first", false)
	if err := client.ExpectUpdates(t.Context(), ModeKeep); err != nil {
		t.Fatal(err)
	}
	asks("announced", true)
	update(WeightUpdate{Mode: ModeDrain})
	asks("after an update that waited for requests", false)
	update(WeightUpdate{Mode: ModeNone})
	asks("after one that held nothing", true)
	h, err := g.Hold(t.Context(), HoldRequest{Mode: ModeAbort})
	if err != nil {
		t.Fatal(err)
	}
	update(WeightUpdate{Hold: h.ID, Mode: ModeKeep}) // the hold decides what happens to requests, not the update
	if err := g.Resume(h.ID); err != nil {
		t.Fatal(err)
	}
	asks("after one under a hold that aborted", false)
	if h, err = g.Hold(t.Context(), HoldRequest{Mode: ModeKeep}); err != nil {
		t.Fatal(err)
	}
	update(WeightUpdate{Hold: h.ID})
	if err := g.Resume(h.ID); err != nil {
		t.Fatal(err)
	}
	asks("after one under a hold that kept", true)
	if s, err := client.Status(t.Context()); err != nil || s.Updates != ModeKeep {
		t.Errorf("status %+v, %v", s, err)
	}
	config.Version, config.Last = g.Version(), &WeightUpdate{Weights: sdk.Weights{Version: int64(g.Version())},
		Mode: ModeKeep}
	if s := start(t, config, e).Status(); s.Updates != ModeKeep {
		t.Errorf("the next life expects %q", s.Updates)
	}
	if err := client.ExpectUpdates(t.Context(), "sometimes"); err == nil || !strings.Contains(err.Error(), "sometimes") {
		t.Errorf("an unknown mode: %v", err)
	}
}

// When a stream fails midway, the client gets one whole answer, or one error as without streams.
func TestAStreamThatFailsMidway(t *testing.T) {
	t.Parallel()
	const whole = `{"id":"x","choices":[{"index":0,"text":"ab","token_ids":[7,8],"logprobs":{"token_logprobs":[-1,-2]},"finish_reason":"stop"}],"usage":{"completion_tokens":2}}`
	begun, end := `{"choices":[{"index":0,"text":"a","token_ids":[7],"logprobs":{"token_logprobs":[-1]}}]}`, `{"choices":[{"index":0,"text":"b","token_ids":[8],"logprobs":{"token_logprobs":[-2]},"finish_reason":"stop"}]}`
	stream := func(list ...string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { sendEvents(w, list...) }
	}
	for _, c := range []struct {
		name   string
		stream func(http.ResponseWriter, *http.Request)
		always bool // otherwise only the first stream fails
		again  string
		status int
		off    bool // after some failures no streams are requested any more
	}{
		{"the engine says that it failed", stream(begun, `{"error":{"message":"out of memory","code":500}}`, "[DONE]"),
			false, "stream", 200, false},
		{"it fails always", stream(begun, `{"error":{"message":"out of memory","code":500}}`, "[DONE]"), true, "stream", 500,
			false},
		{"the engine says that the request is wrong", stream(`{"error":{"message":"too long","code":400}}`),
			true, "whole", 200, false},
		{"the request for a stream is refused", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `{"error":{"message":"no beams in streams"}}`, http.StatusBadRequest)
		}, true, "whole", 200, false},
		{"the connection breaks", func(w http.ResponseWriter, _ *http.Request) {
			sendEvents(w, begun)
			panic(http.ErrAbortHandler)
		}, false, "stream", 200, false},
		{"no end", stream(begun), true, "whole", 200, true},
		{"nothing in it", stream("[DONE]"), true, "whole", 200, true},
		{"no token ids", stream(`{"choices":[{"index":0,"text":"ab","finish_reason":"stop"}]}`), true, "whole", 200, true},
		{"log-probabilities that do not fit", stream(`{"choices":[{"index":0,"text":"ab","token_ids":[7,8],"logprobs":{"token_logprobs":[-1]},"finish_reason":"stop"}]}`), true, "whole", 200, true},
		{"a text that is none", stream(`{"choices":[{"index":0,"text":3,"token_ids":[7],"logprobs":{"token_logprobs":[-1]},"finish_reason":"stop"}]}`), true, "whole", 200, true},
		{"a refusal that is no JSON", stream("{]", begun, end), true, "whole", 200, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := newEngine(t)
			var failed atomic.Bool
			good := either([]byte(whole), []string{begun, end, "[DONE]"})
			e.set(nil, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if gjson.GetBytes(body, "stream").Bool() && (c.always || failed.CompareAndSwap(false, true)) {
					c.stream(w, r)
					return
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
				good(w, r)
			})
			ev := &events{}
			g := expecting(t, Config{Version: 1, Events: ev.add, Cooldown: 1}, e)
			r := post(t, g, "/generate", `{"prompt":[1],"logprobs":0}`)
			if r.status != c.status {
				t.Fatalf("%d %s, want %d", r.status, r.body, c.status)
			}
			if c.status == 200 && (gjson.Get(r.body, "token_ids").Raw != "[[7,8]]" || gjson.Get(r.body, "text.0").Str != "ab") {
				t.Errorf("answered %s", r.body)
			}
			if c.status != 200 && (gjson.Get(r.body, "error.message").Str != "out of memory" ||
				strings.Contains(r.body, "token_ids")) {
				t.Errorf("answered %s", r.body)
			}
			seen := e.seen()
			if again := gjson.Get(seen[len(seen)-1].body, "stream").Bool(); again != (c.again == "stream") {
				t.Errorf("asked again for a stream: %v, want %s", again, c.again)
			}
			for range 2 * maxUnusable {
				post(t, g, "/generate", `{"prompt":[1],"logprobs":0}`)
			}
			before := e.streams()
			post(t, g, "/generate", `{"prompt":[1],"logprobs":0}`)
			if off := e.streams() == before; off != c.off || (ev.count(EventRangeOnly) == 1) != c.off {
				t.Errorf("asks for no streams any more: %v, want %v; reported %d times", off, c.off, ev.count(EventRangeOnly))
			}
			if err := g.Admit(t.Context(), "0", 1); err != nil { // another engine may be there now
				t.Fatal(err)
			}
			post(t, g, "/generate", `{"prompt":[1],"logprobs":0}`)
			if e.streams() == before && c.off {
				t.Error("a replica that was admitted anew is not tried")
			}
			if n := g.Status().InFlight; n != 0 {
				t.Errorf("%d requests still count as in flight", n)
			}
		})
	}
}

// A client that disconnects, a hold that aborts, and an update that fails end a stream behind /generate like any other
// request.
func TestAStreamBehindGenerateIsCanceled(t *testing.T) {
	t.Parallel()
	const request = `{"prompt":[1,2],"logprobs":0}`
	last := strings.Replace(token(6, `,"finish_reason":"stop"`), `"index":0`, `"index":0,"text":"b"`, 1)
	first := strings.Replace(token(5, ""), `"index":0`, `"index":0,"text":"a"`, 1)
	begin := func(t *testing.T) (*fakeEngine, *Gateway, chan struct{}, chan struct{}) {
		e := newEngine(t)
		ended := make(chan struct{}, 8)
		broken := false
		g := expecting(t, Config{Version: 2, Update: func(context.Context, []Replica, WeightUpdate) error {
			if broken = !broken; broken {
				return fmt.Errorf("broken")
			}
			return nil
		}}, e)
		next := switching(e, first, last)
		e.set(func(r *http.Request) { context.AfterFunc(r.Context(), func() { ended <- struct{}{} }) }, e.respond)
		return e, g, next, ended
	}
	t.Run("client gone", func(t *testing.T) {
		t.Parallel()
		e, g, _, ended := begin(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { _, _ = send(ctx, g, "/generate", request); close(done) }()
		eventually(t, "the stream", func() bool { return e.streams() == 1 })
		cancel()
		<-ended
		<-done
		eventually(t, "the request to be released", func() bool { return g.Status().InFlight == 0 })
		if got := known(g); len(got) != 0 {
			t.Errorf("recorded %v", got)
		}
	})
	t.Run("abort", func(t *testing.T) {
		t.Parallel()
		e, g, next, ended := begin(t)
		got := background(t, g, "/generate", request)
		eventually(t, "the stream", func() bool { return e.streams() == 1 })
		h, err := g.Hold(t.Context(), HoldRequest{Mode: ModeAbort})
		if err != nil {
			t.Fatal(err)
		}
		<-ended
		if err := g.SetVersion(3); err != nil {
			t.Fatal(err)
		}
		if err := g.Resume(h.ID); err != nil {
			t.Fatal(err)
		}
		close(next) // without order: the engine's end of the first request may still be open
		if r := <-got; r.status != 200 || gjson.Get(r.body, "token_ids").Raw != "[[5,6]]" ||
			gjson.Get(r.body, "policy_version").Int() != 3 {
			t.Errorf("%d %s", r.status, r.body)
		}
	})
	t.Run("an update that nobody took", func(t *testing.T) {
		t.Parallel()
		e, g, next, ended := begin(t)
		got := background(t, g, "/generate", request)
		eventually(t, "the stream", func() bool { return e.streams() == 1 })
		if _, err := g.UpdateWeights(t.Context(), WeightUpdate{Weights: sdk.Weights{Version: 3},
			Mode: ModeKeep}); err == nil {
			t.Fatal("the update did not fail")
		}
		<-ended // the version of its tokens would be unknown
		if _, err := g.UpdateWeights(t.Context(), WeightUpdate{Weights: sdk.Weights{Version: 3},
			Mode: ModeKeep}); err != nil {
			t.Fatal(err)
		}
		close(next) // without order: the engine's end of the first request may still be open
		if r := <-got; r.status != 200 || gjson.Get(r.body, "policy_version").Int() != 3 ||
			gjson.Get(r.body, "policy_version_max").Int() != 3 {
			t.Errorf("%d %s", r.status, r.body)
		}
	})
}
