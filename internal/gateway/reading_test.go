package gateway

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// What an engine reads in an answer reaches the program in each dialect, and the next call continues the answer's
// tokens though the program leaves the reasoning out.
func TestAnEngineReadsTheAnswers(t *testing.T) {
	t.Parallel()
	const tool = `"tools":[{"type":"function","function":{"name":"add","parameters":{"type":"object"}}}]`
	for _, test := range []struct {
		name   string
		said   Said
		err    error
		cut    bool
		status int               // of an error; 0: none
		want   map[string]string // by path in the answer
	}{
		{name: "reasoning and a call", said: Said{Reasoning: "why", Text: "so ", Calls: []ToolCall{{"add", `{"a":1}`}}},
			want: map[string]string{"message.reasoning_content": "why", "message.content": "so",
				"message.tool_calls.0.function.name":      "add",
				"message.tool_calls.0.function.arguments": `{"a":1}`, "finish_reason": "tool_calls"}},
		{name: "reasoning and a text", said: Said{Reasoning: "why", Text: "so"},
			want: map[string]string{"message.reasoning_content": "why", "message.content": "so", "finish_reason": "stop"}},
		{name: "a text alone is the engine's own", said: Said{Text: "decoded otherwise"},
			want: map[string]string{"message.content": "said 1000", "finish_reason": "stop"}},
		{name: "arguments that are no JSON", said: Said{Calls: []ToolCall{{"add", `{"a":`}}},
			want: map[string]string{"message.content": "said 1000", "finish_reason": "stop"}},
		{name: "arguments that are no object", said: Said{Calls: []ToolCall{{"add", `[1]`}}},
			want: map[string]string{"message.content": "said 1000", "finish_reason": "stop"}},
		{name: "a call in an answer that is cut off", said: Said{Calls: []ToolCall{{"add", `{}`}}}, cut: true,
			want: map[string]string{"message.content": "said 1000", "finish_reason": "length"}},
		{name: "the engine has no parser", err: ErrNotRead,
			want: map[string]string{"message.content": "said 1000", "finish_reason": "stop"}},
		{name: "the engine is gone", err: errors.New("connection refused"), status: http.StatusBadGateway},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			e := newTalkEngine(t)
			e.cut = test.cut
			var asked []Sampled
			g := start(t, Config{Sessions: t.TempDir(), Read: func(_ context.Context, _ Replica, s Sampled) (Said, error) {
				asked = append(asked, s)
				return test.said, test.err
			}}, e.fakeEngine)
			id, c := openSession(t, g, `{}`)
			c.more = "," + tool
			status, body := c.ask(userSays("a"))
			if test.status != 0 {
				if status != test.status || !strings.Contains(body, "has not read its answer") {
					t.Errorf("%d %s, want %d", status, body, test.status)
				}
				return
			}
			choice := gjson.Get(body, "choices.0")
			for path, want := range test.want {
				if got := choice.Get(path).Str; got != want {
					t.Errorf("%s is %q, want %q: %s", path, got, want, body)
				}
			}
			if a := asked[0]; !slices.Equal(a.Output, []int32{1000, 1001, turnEnd}[:len(a.Output)]) || len(a.Tools) == 0 ||
				a.Text != "said 1000" || !slices.Equal(a.Prompt, []int32{8, 1, 'a' + 100, turnEnd, 2}) {
				t.Errorf("the engine was asked to read %+v", a)
			}
			if test.cut || choice.Get("message.tool_calls").Exists() {
				return
			}
			c.messages = append(c.messages, []byte(`{"role":"assistant","content":`+choice.Get("message.content").Raw+`}`))
			c.say(userSays("b"))
			if n := len(owner(t, g, http.MethodGet, "/recipe/v1/sessions/"+id, "").Get("sequences").Array()); n != 1 {
				t.Errorf("%d sequences, want 1", n)
			}
		})
	}
}

// Reasoning has a form of its own in each dialect, whole and streamed.
func TestReasoningInEachDialect(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, route, body, want string }{
		{"chat", "/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}]}`, `"reasoning_content":"why"`},
		{"chat, streamed", "/v1/chat/completions", `{"stream":true,"messages":[{"role":"user","content":"a"}]}`,
			`"reasoning_content":"why"`},
		{"messages", "/v1/messages", `{"max_tokens":9,"thinking":{"type":"enabled","budget_tokens":5},` +
			`"messages":[{"role":"user","content":"a"}]}`, `{"type":"thinking","thinking":"why","signature":"msg_`},
		{"messages, streamed", "/v1/messages", `{"stream":true,"max_tokens":9,"thinking":{"type":"adaptive"},` +
			`"messages":[{"role":"user","content":"a"}]}`, `"thinking":"why","type":"thinking_delta"`},
		{"messages that do not ask for it", "/v1/messages", `{"max_tokens":9,"messages":[{"role":"user","content":"a"}]}`,
			`"content":[{"type":"text","text":"so"}]`},
		{"responses", "/v1/responses", `{"input":"a"}`, `"content":[{"type":"reasoning_text","text":"why"}],"summary":[]`},
		{"responses, streamed", "/v1/responses", `{"input":"a","stream":true}`, `event: response.reasoning_text.done`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			g := start(t, Config{Sessions: t.TempDir(), Read: func(context.Context, Replica, Sampled) (Said, error) {
				return Said{Reasoning: "why", Text: "so"}, nil
			}}, newTalkEngine(t).fakeEngine)
			_, c := openSession(t, g, `{}`)
			status, body := request(t, g, http.MethodPost, test.route, c.key, test.body)
			if status != http.StatusOK || !strings.Contains(body, test.want) {
				t.Errorf("%d %s, want %s", status, body, test.want)
			}
		})
	}
}

// What a program forces reaches the engine, and is not trained: it is not the policy's own choice.
func TestAForcedCallIsNotTrained(t *testing.T) {
	t.Parallel()
	e := newTalkEngine(t)
	e.say = `{"name":"add","arguments":{"a":1}}`
	g := start(t, Config{Sessions: t.TempDir()}, e.fakeEngine)
	id, c := openSession(t, g, `{}`)
	c.more = `,"tools":[{"type":"function","function":{"name":"add"}}],"tool_choice":"required"`
	said := c.say(userSays("a"))
	if call := said.Get("choices.0.message.tool_calls.0.function"); call.Get("name").Str != "add" ||
		call.Get("arguments").Str != `{"a":1}` || said.Get("choices.0.finish_reason").Str != "tool_calls" {
		t.Errorf("the program got %s", said.Raw)
	}
	requests := e.seen()
	if sent := requests[len(requests)-1].body; gjson.Get(sent, "response_format.type").Str != "json_schema" {
		t.Errorf("the engine got %s", sent)
	}
	s := owner(t, g, http.MethodGet, "/recipe/v1/sessions/"+id, "").Get("sequences.0")
	tokens := int64(len(s.Get("tokens").Array()))
	if masked := s.Get("masked.0"); masked.Get("why").Str != "constrained" || masked.Get("end").Int() != tokens {
		t.Errorf("the sequence is %s", s.Raw)
	}
}
