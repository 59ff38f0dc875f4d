package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"
)

// talkEngine is an engine with a chat template: each message is its role, its bytes and an end; what it samples are
// tokens from 1000, each another one, and an end. It keeps the prompts that it got.
type talkEngine struct {
	*fakeEngine
	mu      sync.Mutex
	next    int
	prompts [][]int
	say     string // the text of the next answers; empty: the tokens
	cut     bool   // the next answers end by length
}

const turnEnd = 9

func newTalkEngine(t testing.TB) *talkEngine {
	e := &talkEngine{fakeEngine: newEngine(t), next: 1000}
	e.set(nil, e.serve)
	return e
}

var roleTokens = map[string]int{"user": 1, "assistant": 2, "tool": 3, "system": 4}

func (e *talkEngine) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	e.mu.Lock()
	defer e.mu.Unlock()
	root := gjson.ParseBytes(body)
	switch r.URL.Path {
	case "/tokenize":
		var ids []int
		if root.Get("tools").Exists() {
			ids = append(ids, 8)
		}
		for _, m := range root.Get("messages").Array() {
			ids = append(ids, roleTokens[m.Get("role").Str])
			for _, b := range []byte(m.Get("content").Str + m.Get("tool_calls.0.function.arguments").Str) {
				ids = append(ids, int(b)+100)
			}
			ids = append(ids, turnEnd)
		}
		ids = append(ids, roleTokens["assistant"])
		out, _ := json.Marshal(map[string]any{"tokens": ids, "max_model_len": 2000})
		_, _ = w.Write(out)
	case "/v1/completions":
		var prompt []int
		for _, id := range root.Get("prompt").Array() {
			prompt = append(prompt, int(id.Int()))
		}
		e.prompts = append(e.prompts, prompt)
		ids, finish := []int{e.next, e.next + 1, turnEnd}, "stop"
		if e.cut {
			ids, finish = ids[:2], "length"
		}
		text := e.say
		if text == "" {
			text = fmt.Sprint("said ", e.next)
		}
		e.next += 2
		out, _ := json.Marshal(map[string]any{"choices": []any{map[string]any{"index": 0, "text": text,
			"finish_reason": finish,
			"token_ids":     ids, "logprobs": map[string]any{"token_logprobs": []float64{-.5, -.25, -.125}[:len(ids)]}}},
			"usage": map[string]any{"completion_tokens": len(ids)}})
		_, _ = w.Write(out)
	default:
		http.Error(w, `{"error":{"message":"no such route"}}`, http.StatusNotFound)
	}
}

// owner calls a control route with the data token.
func owner(t testing.TB, g *Gateway, method, path, body string) gjson.Result {
	t.Helper()
	status, text := request(t, g, method, path, dataToken, body)
	if status != http.StatusOK {
		t.Fatalf("%s %s: %d %s", method, path, status, text)
	}
	return gjson.Parse(text)
}

func request(t testing.TB, g *Gateway, method, path, token, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, g.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(out)
}

// talk is a program that keeps its conversation.
type talk struct {
	t        testing.TB
	g        *Gateway
	key      string
	messages []json.RawMessage
	more     string // further members of the request
}

func (c *talk) say(message string) gjson.Result {
	c.t.Helper()
	status, body := c.ask(message)
	if status != http.StatusOK {
		c.t.Fatalf("%d %s", status, body)
	}
	answer := gjson.Get(body, "choices.0.message")
	c.messages = append(c.messages, json.RawMessage(answer.Raw))
	return gjson.Parse(body)
}

func (c *talk) ask(message string) (int, string) {
	c.t.Helper()
	c.messages = append(c.messages, json.RawMessage(message))
	body, _ := json.Marshal(c.messages)
	return request(c.t, c.g, http.MethodPost, "/v1/chat/completions", c.key, `{"model":"policy","messages":`+string(body)+c.more+`}`)
}

func userSays(text string) string { return fmt.Sprintf(`{"role":"user","content":%q}`, text) }

func openSession(t testing.TB, g *Gateway, body string) (id string, c *talk) {
	t.Helper()
	s := owner(t, g, http.MethodPost, "/recipe/v1/sessions", body)
	return s.Get("id").Str, &talk{t: t, g: g, key: s.Get("key").Str}
}

func numbers(r gjson.Result) []int {
	var out []int
	for _, v := range r.Array() {
		out = append(out, int(v.Int()))
	}
	return out
}

func TestASessionIsTrainedAsItWasSampled(t *testing.T) {
	t.Parallel()
	e := newTalkEngine(t)
	g := start(t, Config{Version: 4, Sessions: t.TempDir()}, e.fakeEngine)
	id, c := openSession(t, g, `{"task":"t1","group":"g","index":2}`)
	c.say(userSays("ab"))
	c.say(userSays("c"))
	want := [][]int{
		{1, 'a' + 100, 'b' + 100, turnEnd, 2},
		{1, 'a' + 100, 'b' + 100, turnEnd, 2, 1000, 1001, turnEnd, 1, 'c' + 100, turnEnd, 2}, // its own tokens, and the gap
	}
	if !slices.EqualFunc(e.prompts, want, slices.Equal) {
		t.Errorf("the engine got %v, want %v", e.prompts, want)
	}
	owner(t, g, http.MethodPost, "/recipe/v1/sessions/"+id+"/reward", `{"reward":0.5,"metrics":{"a":1}}`)
	s := owner(t, g, http.MethodGet, "/recipe/v1/sessions/"+id, "")
	q := s.Get("sequences.0")
	if got := numbers(q.Get("tokens")); !slices.Equal(got, append(want[1], 1002, 1003, turnEnd)) {
		t.Errorf("tokens %v", got)
	}
	masks := numbers(q.Get("masks"))
	if !slices.Equal(masks[5:8], []int{1000, 1001, turnEnd}) || masks[8] != -100 || masks[4] != -100 || masks[12] != 1002 {
		t.Errorf("masks %v", masks)
	}
	if q.Get("logprobs.5").Num != -.5 || q.Get("logprobs.8").Num != 1 || q.Get("versions.0.version").Int() != 4 {
		t.Errorf("sequence %s", q.Raw)
	}
	if n := len(s.Get("sequences").Array()); n != 1 || s.Get("reward").Num != .5 || s.Get("state").Str != "finished" ||
		s.Get("task").Str != "t1" || s.Get("index").Int() != 2 || s.Get("sampled").Int() != 6 {
		t.Errorf("session %s", s.Raw)
	}
	if status, body := c.ask(userSays("d")); status != http.StatusConflict {
		t.Errorf("a call after the reward: %d %s", status, body)
	}
}

func TestToolsOfASession(t *testing.T) {
	t.Parallel()
	e := newTalkEngine(t)
	g := start(t, Config{Sessions: t.TempDir()}, e.fakeEngine)
	id, c := openSession(t, g, `{}`)
	c.more = `,"tools":[{"type":"function","function":{"name":"add"}}]`
	e.say = "let me see <tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>"
	answer := c.say(userSays("1+1"))
	message := answer.Get("choices.0.message")
	if answer.Get("choices.0.finish_reason").Str != "tool_calls" || message.Get("content").Str != "let me see" ||
		message.Get("tool_calls.0.function.name").Str != "add" || message.Get("tool_calls.0.function.arguments").Str != `{"a": 1}` {
		t.Fatalf("answer %s", answer.Raw)
	}
	e.say = "2"
	c.say(fmt.Sprintf(`{"role":"tool","tool_call_id":%q,"content":"2"}`, message.Get("tool_calls.0.id").Str))
	if got := e.prompts[1][len(e.prompts[0]):]; !slices.Equal(got, []int{1000, 1001, turnEnd, 3, '2' + 100, turnEnd, 2}) {
		t.Errorf("after the first prompt the engine got %v", got)
	}
	e.say = "<tool_call>{\"name\": \"add\", </tool_call>"
	if answer := c.say(userSays("again")); answer.Get("choices.0.message.content").Str != e.say ||
		answer.Get("choices.0.message.tool_calls").Exists() {
		t.Errorf("a call that cannot be read: %s", answer.Raw)
	}
	if n := len(owner(t, g, http.MethodGet, "/recipe/v1/sessions/"+id, "").Get("sequences").Array()); n != 1 {
		t.Errorf("%d sequences, want 1", n)
	}
}

func TestConversationsThatDoNotContinue(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		do   func(e *talkEngine, c *talk)
		want []string // kinds of the sequences
	}{
		{"a title is asked for", func(_ *talkEngine, c *talk) {
			c.say(userSays("q"))
			other := *c
			other.messages = nil
			other.say(userSays("name this conversation"))
			c.say(userSays("more"))
		}, []string{"fork", "root"}},
		{"compaction", func(_ *talkEngine, c *talk) {
			c.say(userSays("q"))
			c.messages = []json.RawMessage{json.RawMessage(userSays("summary"))}
			c.say(userSays("more"))
		}, []string{"root", "fork"}},
		{"an answer that was cut", func(e *talkEngine, c *talk) {
			e.cut = true
			c.say(userSays("q"))
			c.say(userSays("more"))
			if got := e.prompts[1]; got[6] != turnEnd { // that the model did not sample
				t.Errorf("after the first prompt the engine got %v", got)
			}
		}, []string{"root"}},
		{"two answers to one question", func(_ *talkEngine, c *talk) {
			c.say(userSays("q"))
			c.messages = nil
			c.say(userSays("q"))
			c.say(userSays("more"))
		}, []string{"fork"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			e := newTalkEngine(t)
			g := start(t, Config{Sessions: t.TempDir()}, e.fakeEngine)
			id, c := openSession(t, g, `{}`)
			tc.do(e, c)
			var kinds []string
			for _, q := range owner(t, g, http.MethodGet, "/recipe/v1/sessions/"+id, "").Get("sequences").Array() {
				kinds = append(kinds, q.Get("kind").Str)
			}
			if !slices.Equal(kinds, tc.want) {
				t.Errorf("sequences %v, want %v", kinds, tc.want)
			}
		})
	}
}

func TestBudgetOfASession(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, budget, why string
		calls             int // that are answered
	}{
		{"turns", `{"turns":2}`, "turns", 2},
		{"tokens", `{"tokens":4}`, "tokens", 2},
		{"context", `{"context":12}`, "context", 1},
		{"seconds", `{"seconds":0.000000001}`, "seconds", 0},
		{"none", `{}`, "", 3},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			g := start(t, Config{Sessions: t.TempDir()}, newTalkEngine(t).fakeEngine)
			id, c := openSession(t, g, `{"budget":`+tc.budget+`}`)
			for i := range 3 {
				status, body := c.ask(userSays("abc"))
				if i < tc.calls {
					if status != 200 {
						t.Fatalf("call %d: %d %s", i, status, body)
					}
					c.messages = append(c.messages, json.RawMessage(gjson.Get(body, "choices.0.message").Raw))
					continue
				}
				if status != http.StatusBadRequest || gjson.Get(body, "error.type").Str != "context_length_exceeded" {
					t.Errorf("call %d: %d %s", i, status, body)
				}
			}
			owner(t, g, http.MethodPost, "/recipe/v1/sessions/"+id+"/reward", `{"reward":1}`)
			s := owner(t, g, http.MethodGet, "/recipe/v1/sessions/"+id, "")
			if !strings.HasPrefix(s.Get("truncated").Str, tc.why) || (tc.why == "") != !s.Get("truncated").Exists() ||
				s.Get("reward").Num != 1 {
				t.Errorf("session %s", s.Raw)
			}
		})
	}
}

func TestWhatASessionMaySample(t *testing.T) {
	t.Parallel()
	e := newTalkEngine(t)
	g := start(t, Config{Sessions: t.TempDir()}, e.fakeEngine)
	id, c := openSession(t, g, `{"sampling":{"temperature":0.7,"top_k":50}}`)
	c.more = `,"temperature":0,"top_p":0.1,"stop":["x"],"max_tokens":5`
	c.say(userSays("q"))
	seen := e.seen()
	body := gjson.Parse(seen[len(seen)-1].body)
	if body.Get("temperature").Num != .7 || body.Get("top_k").Int() != 50 || body.Get("top_p").Exists() ||
		body.Get("stop.0").Str != "x" || body.Get("max_tokens").Int() != 5 {
		t.Errorf("the engine got %s", body.Raw)
	}
	if n := owner(t, g, http.MethodGet, "/recipe/v1/sessions/"+id, "").Get("overruled").Int(); n != 2 {
		t.Errorf("%d parameters were overruled, want 2", n)
	}
}

func TestWhatASessionRefuses(t *testing.T) {
	t.Parallel()
	g := start(t, Config{Sessions: t.TempDir()}, newTalkEngine(t).fakeEngine)
	id, c := openSession(t, g, `{}`)
	_, other := openSession(t, g, `{}`)
	const say = `{"messages":[{"role":"user","content":"q"}]`
	tests := []struct {
		name, method, path, token, body string
		want                            int
		say                             string
	}{
		{"n", "POST", "/v1/chat/completions", c.key, say + `,"n":2}`, 400, "one answer"},
		{"log-probabilities", "POST", "/v1/chat/completions", c.key, say + `,"logprobs":true}`, 400, "logprobs"},
		{"forced tool", "POST", "/v1/chat/completions", c.key, say + `,"tool_choice":"required"}`, 400, "tool_choice"},
		{"unknown format", "POST", "/v1/chat/completions", c.key, say + `,"response_format":{"type":"xml"}}`, 400, "response_format"},
		{"images", "POST", "/v1/chat/completions", c.key, `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, 400, "image_url"},
		{"no messages", "POST", "/v1/chat/completions", c.key, `{}`, 400, "at least one"},
		{"no JSON", "POST", "/v1/chat/completions", c.key, `{`, 400, "JSON"},
		{"unknown role", "POST", "/v1/chat/completions", c.key, `{"messages":[{"role":"x"}]}`, 400, "role"},
		{"another route", "POST", "/v1/completions", c.key, `{"prompt":"x"}`, 404, "/v1/chat/completions"},
		{"the control routes", "GET", "/recipe/v1/status", c.key, ``, 404, ""},
		{"its own session", "GET", "/recipe/v1/sessions/" + id, c.key, ``, 404, ""},
		{"metrics", "GET", "/metrics", c.key, ``, 404, ""},
		{"a key with another ID", "POST", "/v1/chat/completions", strings.Replace(c.key, id, strings.Repeat("A", 26), 1), say + `}`, 401, ""},
		{"a key with another MAC", "POST", "/v1/chat/completions", c.key[:len(c.key)-2] + "AA", say + `}`, 401, ""},
		{"unknown session", "GET", "/recipe/v1/sessions/" + strings.Repeat("A", 26), dataToken, ``, 404, "no such session"},
		{"a name that is a path", "GET", "/recipe/v1/sessions/..%2f..", dataToken, ``, 404, ""},
		{"without a token", "POST", "/recipe/v1/sessions", "", `{}`, 401, ""},
		{"unknown sampling", "POST", "/recipe/v1/sessions", dataToken, `{"sampling":{"n":2}}`, 400, "sampling"},
		{"budget below 0", "POST", "/recipe/v1/sessions", dataToken, `{"budget":{"turns":-1}}`, 400, "budget"},
		{"no reward", "POST", "/recipe/v1/sessions/" + id + "/reward", dataToken, `{}`, 400, "reward is missing"},
		{"a metric that cannot be shown", "POST", "/recipe/v1/sessions/" + id + "/reward", dataToken,
			`{"reward":1,"metrics":{"a\n::error::b":1}}`, 400, "cannot be shown"},
		{"a metric for each task", "POST", "/recipe/v1/sessions/" + id + "/reward", dataToken, manyMetrics(), 400,
			"more than 64"},
		{"unknown action", "POST", "/recipe/v1/sessions/" + id + "/x", dataToken, `{}`, 404, "reward, finish, abort"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			status, body := request(t, g, tc.method, tc.path, tc.token, tc.body)
			if status != tc.want || !strings.Contains(body, tc.say) {
				t.Errorf("got %d %s, want %d and %q", status, body, tc.want, tc.say)
			}
		})
	}
	owner(t, g, http.MethodDelete, "/recipe/v1/sessions/"+id, "")
	if status, _ := c.ask(userSays("q")); status != http.StatusUnauthorized {
		t.Errorf("a call of a deleted session: %d", status)
	}
	other.say(userSays("q"))
}

func TestSessionsOutliveTheGateway(t *testing.T) {
	t.Parallel()
	e, folder := newTalkEngine(t), t.TempDir()
	first := start(t, Config{Version: 3, Sessions: folder}, e.fakeEngine)
	id, c := openSession(t, first, `{"task":"t"}`)
	c.say(userSays("q"))
	before := owner(t, first, http.MethodGet, "/recipe/v1/sessions/"+id, "").Get("sequences").Raw
	path := filepath.Join(folder, id+".jsonl")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(whole, `{"call":{"pro`...), 0o600); err != nil { // killed while it wrote
		t.Fatal(err)
	}
	c.g = start(t, Config{Version: 3, Sessions: folder}, e.fakeEngine)
	if after := owner(t, c.g, http.MethodGet, "/recipe/v1/sessions/"+id, "").Get("sequences").Raw; after != before {
		t.Errorf("after the restart %s, before it %s", after, before)
	}
	c.say(userSays("more"))
	s := owner(t, c.g, http.MethodGet, "/recipe/v1/sessions/"+id, "")
	if len(s.Get("sequences").Array()) != 1 || s.Get("calls").Int() != 2 || s.Get("task").Str != "t" {
		t.Errorf("session %s", s.Raw)
	}
	if text, _ := os.ReadFile(path); !bytes.HasPrefix(text, whole) || !json.Valid(bytes.Split(text[len(whole):],
		[]byte("\n"))[0]) {
		t.Errorf("the journal is torn: %s", text)
	}
}

func TestAnAnswerThatNobodyGotIsNotTrained(t *testing.T) {
	t.Parallel()
	e := newTalkEngine(t)
	g := start(t, Config{Sessions: t.TempDir()}, e.fakeEngine)
	id, c := openSession(t, g, `{}`)
	asked, leave := askInVain(t, e, c)
	<-asked
	leave()
	e.set(nil, e.serve)
	eventually(t, "the call to end", func() bool { return pending(t, g, id) == 0 })
	if s := owner(t, g, http.MethodGet, "/recipe/v1/sessions/"+id, ""); s.Get("calls").Int() != 0 {
		t.Errorf("session %s", s.Raw)
	}
	c.say(userSays("q"))
}

// askInVain makes a call that the engine does not answer, until the program leaves.
func askInVain(t *testing.T, e *talkEngine, c *talk) (asked chan struct{}, leave func()) {
	ctx, cancel := context.WithCancel(t.Context())
	asked = make(chan struct{})
	e.set(nil, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/completions" {
			close(asked)
			<-r.Context().Done() // the client's end reaches the engine
			return
		}
		e.serve(w, r)
	})
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, c.g.URL()+"/v1/chat/completions",
			strings.NewReader(`{"messages":[`+userSays("q")+`]}`))
		req.Header.Set("Authorization", "Bearer "+c.key)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
			t.Error("the call was answered")
		}
	}()
	return asked, cancel
}

func pending(t *testing.T, g *Gateway, id string) int {
	t.Helper()
	return int(owner(t, g, http.MethodGet, "/recipe/v1/sessions/"+id, "").Get("pending").Int())
}

// What a program leaves behind could else keep a reward away for ever.
func TestARewardThatComesTooSoon(t *testing.T) {
	t.Parallel()
	e := newTalkEngine(t)
	g := start(t, Config{Sessions: t.TempDir()}, e.fakeEngine)
	id, c := openSession(t, g, `{}`)
	asked, leave := askInVain(t, e, c)
	<-asked
	for _, action := range []string{"reward", "finish"} {
		if status, body := request(t, g, http.MethodPost, "/recipe/v1/sessions/"+id+"/"+action, dataToken,
			`{"reward":1}`); status != http.StatusConflict {
			t.Errorf("%s while a call is answered: %d %s", action, status, body)
		}
	}
	if status, body := c.ask(userSays("q")); status != http.StatusConflict || !strings.Contains(body, "about to end") {
		t.Errorf("another call: %d %s", status, body)
	}
	leave()
	eventually(t, "the call to end", func() bool { return pending(t, g, id) == 0 })
	owner(t, g, http.MethodPost, "/recipe/v1/sessions/"+id+"/reward", `{"reward":1}`)
}

func TestAStreamedSession(t *testing.T) {
	t.Parallel()
	g := start(t, Config{Sessions: t.TempDir()}, newTalkEngine(t).fakeEngine)
	_, c := openSession(t, g, `{}`)
	c.more = `,"stream":true,"stream_options":{"include_usage":true}`
	status, body := c.ask(userSays("q"))
	events := strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n")
	if status != 200 || len(events) != 4 || events[3] != "data: [DONE]" {
		t.Fatalf("got %d %q", status, body)
	}
	for i, want := range []string{"choices.0.delta.content", "choices.0.finish_reason", "usage.completion_tokens"} {
		if v := gjson.Get(strings.TrimPrefix(events[i], "data: "), want); !v.Exists() || v.Type == gjson.Null {
			t.Errorf("event %d has no %s: %s", i, want, events[i])
		}
	}
}

// docs/sessions.md promises these members.
func TestTheFormOfASession(t *testing.T) {
	t.Parallel()
	g := start(t, Config{Sessions: t.TempDir()}, newTalkEngine(t).fakeEngine)
	id, c := openSession(t, g, `{}`)
	c.say(userSays("q"))
	c.messages = nil
	c.say(userSays("other"))
	page, err := os.ReadFile("../../docs/sessions.md")
	if err != nil {
		t.Fatal(err)
	}
	members := func(v gjson.Result) []string {
		var out []string
		v.ForEach(func(key, _ gjson.Result) bool { out = append(out, key.Str); return true })
		slices.Sort(out)
		return out
	}
	s := owner(t, g, http.MethodGet, "/recipe/v1/sessions/"+id, "")
	want := []string{"calls", "format", "id", "opened", "overruled", "pending", "sampled", "sequences", "state"}
	if got := members(s); !slices.Equal(got, want) {
		t.Errorf("a session has %q, want %q", got, want)
	}
	for _, name := range members(s.Get("sequences.0")) {
		if !bytes.Contains(page, []byte("| `"+name+"` |")) {
			t.Errorf("docs/sessions.md does not have the member %s of a sequence", name)
		}
	}
}

func TestASessionInAnthropicsDialect(t *testing.T) {
	t.Parallel()
	e := newTalkEngine(t)
	g := start(t, Config{Sessions: t.TempDir()}, e.fakeEngine)
	id, c := openSession(t, g, `{"budget":{"turns":2}}`)
	ask := func(path, messages string) (int, gjson.Result) {
		status, body := request(t, g, http.MethodPost, path, c.key, `{"model":"policy","max_tokens":99,"messages":[`+messages+`]}`)
		return status, gjson.Parse(body)
	}
	if _, n := ask("/v1/messages/count_tokens", userSays("ab")); n.Get("input_tokens").Int() != 5 {
		t.Errorf("counted %s", n.Raw)
	}
	_, first := ask("/v1/messages", userSays("ab"))
	if first.Get("content.0.text").Str != "said 1000" || first.Get("stop_reason").Str != "end_turn" {
		t.Fatalf("got %s", first.Raw)
	}
	talk := userSays("ab") + `,{"role":"assistant","content":` + first.Get("content").Raw + `},` + userSays("c")
	ask("/v1/messages", talk)
	if want := []int{1, 'a' + 100, 'b' + 100, turnEnd, 2, 1000, 1001, turnEnd, 1, 'c' + 100, turnEnd,
		2}; !slices.Equal(e.prompts[1], want) {
		t.Errorf("the engine got %v, want %v", e.prompts[1], want)
	}
	if n := len(owner(t, g, http.MethodGet, "/recipe/v1/sessions/"+id, "").Get("sequences").Array()); n != 1 {
		t.Errorf("%d sequences, want 1", n)
	}
	status, over := ask("/v1/messages", talk)
	if status != 400 || over.Get("error.type").Str != "invalid_request_error" ||
		!strings.HasPrefix(over.Get("error.message").Str, "prompt is too long") {
		t.Errorf("beyond the budget: %d %s", status, over.Raw)
	}
}

func TestASessionInTheDialectOfResponses(t *testing.T) {
	t.Parallel()
	e := newTalkEngine(t)
	g := start(t, Config{Sessions: t.TempDir()}, e.fakeEngine)
	id, c := openSession(t, g, `{}`)
	ask := func(input string) gjson.Result {
		status, body := request(t, g, http.MethodPost, "/v1/responses", c.key,
			`{"model":"policy","instructions":"s","input":[`+input+`],"tools":[{"type":"function","name":"add","parameters":{}}]}`)
		if status != 200 {
			t.Fatalf("%d %s", status, body)
		}
		return gjson.Parse(body)
	}
	e.say = `<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>`
	first := ask(userSays("q"))
	call := first.Get("output.0")
	if call.Get("name").Str != "add" {
		t.Fatalf("got %s", first.Raw)
	}
	e.say = ""
	ask(userSays("q") + "," + call.Raw + fmt.Sprintf(`,{"type":"function_call_output","call_id":%q,"output":"2"}`, call.Get("call_id").Str))
	if got := e.prompts[1][len(e.prompts[0]):]; !slices.Equal(got, []int{1000, 1001, turnEnd, 3, '2' + 100, turnEnd, 2}) {
		t.Errorf("after the first prompt the engine got %v", got)
	}
	if n := len(owner(t, g, http.MethodGet, "/recipe/v1/sessions/"+id, "").Get("sequences").Array()); n != 1 {
		t.Errorf("%d sequences, want 1", n)
	}
}
