package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// Requests as programs send them that know a model by its base URL alone.

func TestKeysAndBaseURLsOfAgents(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	g := start(t, Config{}, e)
	tests := []struct {
		name, method, path string
		header             [2]string
		want               int
		engine             string // path that the engine gets; empty: it is not asked
	}{
		{"Anthropic's key", "POST", "/v1/messages", [2]string{"X-Api-Key", dataToken}, 200, "/v1/messages"},
		{"Azure's key", "POST", "/v1/completions", [2]string{"Api-Key", dataToken}, 200, "/v1/completions"},
		{"scheme in lower case", "POST", "/v1/completions", [2]string{"Authorization", "bearer " + dataToken}, 200,
			"/v1/completions"},
		{"another scheme", "POST", "/v1/completions", [2]string{"Authorization", "Basic " + dataToken}, 401, ""},
		{"wrong Anthropic key", "POST", "/v1/messages", [2]string{"X-Api-Key", "nope"}, 401, ""},
		{"first request of Claude Code", "HEAD", "/", [2]string{}, 200, ""},
		{"base URL without /v1", "POST", "/chat/completions", [2]string{"X-Api-Key", dataToken}, 200, "/v1/chat/completions"},
		{"base URL with /v1 for Anthropic", "POST", "/v1/v1/messages", [2]string{"X-Api-Key", dataToken}, 200,
			"/v1/messages"},
		{"base URL with a slash at the end", "POST", "//v1/messages", [2]string{"X-Api-Key", dataToken}, 200, "/v1/messages"},
		{"base URL /v1/ with a slash at the end", "POST", "/v1//messages", [2]string{"X-Api-Key", dataToken}, 200,
			"/v1/messages"},
		{"token in the path, no /v1", "POST", "/t/" + dataToken + "/chat/completions", [2]string{}, 200,
			"/v1/chat/completions"},
		{"models without /v1", "GET", "/models", [2]string{"X-Api-Key", dataToken}, 200, "/v1/models"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			before := len(e.seen())
			req, err := http.NewRequest(tc.method, g.URL()+tc.path, strings.NewReader(`{"prompt":"x"}`))
			if err != nil {
				t.Fatal(err)
			}
			if tc.header[0] != "" {
				req.Header.Set(tc.header[0], tc.header[1])
			}
			resp, err := http.DefaultTransport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != tc.want {
				t.Errorf("got %d %s, want %d", resp.StatusCode, body, tc.want)
			}
			got := ""
			for _, r := range e.seen()[before:] {
				got += r.path
				if r.header.Get("X-Api-Key")+r.header.Get("Api-Key") != "" {
					t.Error("the engine got the client's key")
				}
			}
			if got != tc.engine {
				t.Errorf("the engine was asked for %q, want %q", got, tc.engine)
			}
		})
	}
}

func TestOneModelByItsName(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	e.set(nil, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"Qwen/Qwen3-8B","max_model_len":4096},{"id":"policy"}]}`)
	})
	tests := []struct {
		name, id string
		engines  []*fakeEngine
		want     int
	}{
		{"of the engine", "Qwen/Qwen3-8B", []*fakeEngine{e}, 200},
		{"unknown", "gpt-4o", []*fakeEngine{e}, 404},
		{"no replica is up", "policy", nil, 200},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			g := start(t, Config{}, tc.engines...)
			req, _ := http.NewRequest(http.MethodGet, g.URL()+"/v1/models/"+tc.id, nil)
			req.Header.Set("Authorization", "Bearer "+dataToken)
			resp, err := http.DefaultTransport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != tc.want || tc.want == 200 && gjson.GetBytes(body, "id").Str != tc.id {
				t.Errorf("got %d %s, want %d and the model", resp.StatusCode, body, tc.want)
			}
			if tc.want == 404 && !strings.Contains(string(body), "there is Qwen/Qwen3-8B, policy") {
				t.Errorf("the error does not name the models: %s", body)
			}
		})
	}
}

func TestMoreTokensThanTheContextHolds(t *testing.T) {
	t.Parallel()
	const context, prompt = 8192, 100
	e := newEngine(t)
	e.set(nil, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch r.URL.Path {
		case "/v1/models":
			_, _ = fmt.Fprintf(w, `{"data":[{"id":"policy","max_model_len":%d}]}`, context)
			return
		case "/tokenize":
			_, _ = fmt.Fprintf(w, `{"count":%d,"max_model_len":%d}`, prompt, context)
			return
		case "/v1/messages/count_tokens":
			_, _ = fmt.Fprintf(w, `{"input_tokens":%d}`, prompt)
			return
		}
		for _, name := range []string{"max_tokens", "max_completion_tokens"} {
			if n := gjson.GetBytes(body, name).Int(); n > context-prompt {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = fmt.Fprintf(w, `{"error":{"message":"%d tokens are too many"}}`, n)
				return
			}
		}
		_, _ = io.WriteString(w, `{"usage":{"output_tokens":5}}`)
	})
	tests := []struct {
		name, path, body string
		want             int
		sent             string // by the engine's last request: the body
	}{
		{"chat", "/v1/chat/completions", `{"messages":[],"max_tokens":32000,"tools":[]}`, 200, `{"messages":[],"max_tokens":8092,"tools":[]}`},
		{"chat, both names", "/v1/chat/completions", `{"max_completion_tokens":32000,"messages":[],"max_tokens":32000}`, 200,
			`{"max_completion_tokens":8092,"messages":[],"max_tokens":8092}`},
		{"messages", "/v1/messages", `{"model":"policy","max_tokens":32000}`, 200, `{"model":"policy","max_tokens":8092}`},
		{"completions", "/v1/completions", `{"prompt":"x","max_tokens":9000}`, 200, `{"prompt":"x","max_tokens":8092}`},
		{"what fits stays", "/v1/chat/completions", `{"messages":[],"max_tokens":8092}`, 200, `{"messages":[],"max_tokens":8092}`},
		{"token ids", "/v1/completions", `{"prompt":[1,2],"max_tokens":8193}`, 400, ""}, // this engine counts them as 100
	}
	g := start(t, Config{}, e)
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			r := post(t, g, tc.path, tc.body)
			if r.status != tc.want {
				t.Errorf("got %d %s, want %d", r.status, r.body, tc.want)
			}
			seen := e.seen()
			if last := seen[len(seen)-1]; tc.sent != "" && last.body != tc.sent {
				t.Errorf("the engine got %s, want %s", last.body, tc.sent)
			}
		})
	}
	if n := g.met.clamped.Load(); n != 5 {
		t.Errorf("%d clamped requests were counted, want 5", n)
	}
	if n := g.met.tokens.Load(); n != 25 {
		t.Errorf("%d output tokens were counted, want 25", n)
	}
}

func TestErrorsInTheDialectOfTheRoute(t *testing.T) {
	t.Parallel()
	g := start(t, Config{MaxBodyBytes: 10, HoldTimeout: time.Nanosecond})
	tests := []struct {
		name, path, body, kind string // kind: where the error's type stands, and what it is
		at                     string
	}{
		{"messages, too large", "/v1/messages", "{            }", "request_too_large", "error.type"},
		{"messages, no replica", "/v1/messages", "{}", "overloaded_error", "error.type"},
		{"messages, the envelope", "/v1/messages", "{}", "error", "type"},
		{"chat", "/v1/chat/completions", "{}", "held", "error.type"},
		{"responses", "/v1/responses", "{}", "held", "error.type"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			r := post(t, g, tc.path, tc.body)
			if got := gjson.Get(r.body, tc.at).Str; got != tc.kind {
				t.Errorf("%s is %q, want %q in %s", tc.at, got, tc.kind, r.body)
			}
		})
	}
}

func TestAStreamIsCutBetweenEvents(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, path, sent, want string
	}{
		{"half an event", "/v1/chat/completions", "data: {\"a\":1}\n\ndata: {\"id\":\"a\",\"del",
			"data: {\"a\":1}\n\ndata: {\"error\":{"},
		{"carriage returns", "/v1/chat/completions", "data: {\"a\":1}\r\n\r\ndata: {\"id",
			"data: {\"a\":1}\r\n\r\ndata: {\"error\":{"},
		{"no whole event", "/v1/chat/completions", "data: {\"id", "data: {\"error\":{"},
		{"messages", "/v1/messages", "event: ping\ndata: {}\n\nevent: mess",
			"event: ping\ndata: {}\n\nevent: error\ndata: {\"type\":\"error\""},
		{"responses", "/v1/responses", "data: {}\n\nda", "data: {}\n\nevent: error\ndata: {\"code\":\"engine_failed\""},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			e := newEngine(t)
			e.set(nil, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, tc.sent)
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			})
			g := start(t, Config{}, e)
			r := post(t, g, tc.path, `{"stream":true}`)
			if !strings.HasPrefix(r.body, tc.want) || !strings.HasSuffix(r.body, "}\n\n") {
				t.Errorf("the client got %q, want it to begin with %q", r.body, tc.want)
			}
			if strings.Contains(r.body, "127.0.0.1") {
				t.Errorf("the client learned the engine's address: %s", r.body)
			}
		})
	}
}

func TestMessagesNameNoAddressOfAnEngine(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	g := start(t, Config{}, e)
	for message, want := range map[string]string{
		"read tcp 127.0.0.1:5000->127.0.0.1:41001: read: connection reset by peer": "read: connection reset by peer",
		"dial tcp [::1]:41001: connect: connection refused":                        "connect: connection refused",
		"GET " + e.URL + "/health: 503":                                            "GET the engine/health: 503",
		"no replica: 0: not admitted yet":                                          "no replica: 0: not admitted yet",
	} {
		if got := g.withoutAddresses(message); got != want {
			t.Errorf("%q became %q, want %q", message, got, want)
		}
	}
	e.set(nil, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	if r := post(t, g, "/v1/completions", `{}`); r.status != 502 || strings.Contains(r.body, "127.0.0.1") {
		t.Errorf("got %d %s, want 502 without an address", r.status, r.body)
	}
}

func TestAHeldStreamBeginsEarly(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, path string
		answer     func(w http.ResponseWriter)
		want       string
	}{
		{"the stream follows", "/v1/chat/completions", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: {\"choices\":[]}\n\ndata: [DONE]\n\n")
		}, "data: {\"choices\":[]}\n\ndata: [DONE]\n\n"},
		{"the engine refuses", "/v1/chat/completions", func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":{"message":"no such parameter"}}`)
		}, "data: {\"error\":{\"message\":\"no such parameter\""},
		{"the engine refuses Messages", "/v1/messages", func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"type":"error","error":{"message":"no such parameter"}}`)
		}, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"no such " +
			"parameter\"}}\n\n"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			e, clock := newEngine(t), newClock()
			e.set(nil, func(w http.ResponseWriter, _ *http.Request) { tc.answer(w) })
			g := start(t, Config{Clock: clock, Version: 3}, e)
			h, err := g.Hold(t.Context(), HoldRequest{Mode: ModeKeep})
			if err != nil {
				t.Fatal(err)
			}
			got := make(chan string, 3)
			trailer := make(chan http.Header, 1)
			go func() {
				defer close(got)
				req, _ := http.NewRequest(http.MethodPost, g.URL()+tc.path, strings.NewReader(`{"stream":true}`))
				req.Header.Set("Authorization", "Bearer "+dataToken)
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					got <- err.Error()
					return
				}
				defer func() { _ = resp.Body.Close() }()
				lines := bufio.NewReader(resp.Body)
				for range 2 {
					line, _ := lines.ReadString('\n')
					_, _ = lines.ReadString('\n')
					got <- line
				}
				rest, _ := io.ReadAll(lines)
				got <- string(rest)
				trailer <- resp.Trailer
			}()
			for range 2 { // a comment, and one more, while the request is held
				eventually(t, "the request to wait", func() bool { return clock.pending() >= 3 }) // hold, late, silent
				clock.advance(silence)
				if line := <-got; line != ": waiting\n" {
					t.Fatalf("the client got %q, want a comment", line)
				}
			}
			if err := g.Resume(h.ID); err != nil {
				t.Fatal(err)
			}
			if rest := <-got; !strings.HasPrefix(rest, tc.want) {
				t.Errorf("the client got %q, want it to begin with %q", rest, tc.want)
			}
			if v := (<-trailer).Get(HeaderVersion); strings.HasPrefix(tc.name, "the stream") && v != "3" {
				t.Errorf("the trailer has version %q, want 3", v)
			}
		})
	}
}

func TestTokensOfEachDialectAreCounted(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, path, kind string
		events           []string
	}{
		{"messages, whole", "/v1/messages", "application/json", []string{`{"type":"message","usage":{"input_tokens":9,"output_tokens":8}}`}},
		{"responses, whole", "/v1/responses", "application/json", []string{`{"object":"response","usage":{"input_tokens":9,"output_tokens":8}}`}},
		{"messages, streamed", "/v1/messages", "text/event-stream", []string{
			`{"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":1}}}`,
			`{"type":"message_delta","usage":{"output_tokens":8}}`}},
		{"responses, streamed", "/v1/responses", "text/event-stream", []string{
			`{"type":"response.output_text.delta","delta":"x"}`,
			`{"type":"response.completed","response":{"usage":{"input_tokens":9,"output_tokens":8}}}`}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			e := newEngine(t)
			e.set(nil, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tc.kind)
				for _, event := range tc.events {
					if tc.kind == "text/event-stream" {
						event = "data: " + event + "\n\n"
					}
					_, _ = io.WriteString(w, event)
				}
			})
			g := start(t, Config{}, e)
			post(t, g, tc.path, fmt.Sprintf(`{"stream":%t}`, tc.kind == "text/event-stream"))
			eventually(t, "8 output tokens", func() bool { return g.met.tokens.Load() == 8 })
		})
	}
}

func TestWholeEventsEqualTheStream(t *testing.T) {
	t.Parallel()
	stream := "data: a\n\ndata: b\r\n\r\n: comment\n\nevent: x\ndata: c\n\ndata: [DONE]\n\nrest"
	for size := 1; size < 20; size++ {
		var out strings.Builder
		var pieces []string
		w := &wholeEvents{to: writeFunc(func(p []byte) (int, error) {
			pieces = append(pieces, string(p))
			return out.Write(p)
		})}
		for part := range slices.Chunk([]byte(stream), size) {
			if _, err := w.Write(part); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range pieces {
			if !strings.HasSuffix(p, "\n\n") && !strings.HasSuffix(p, "\r\n\r\n") {
				t.Errorf("pieces of %d bytes: %q is passed on, which ends in the middle of an event", size, p)
			}
		}
		if err := w.rest(); err != nil || out.String() != stream {
			t.Errorf("pieces of %d bytes: got %q, %v", size, out.String(), err)
		}
	}
}

type writeFunc func([]byte) (int, error)

func (f writeFunc) Write(p []byte) (int, error) { return f(p) }
