package session

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

func TestMessagesAreTheSameConversation(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, messages, chat string }{
		{"texts", `{"system":"s","messages":[{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"text","text":"a"}]},{"role":"user","content":[{"type":"text","text":"m","cache_control":{"type":"ephemeral"}}]}]}`,
			`{"messages":[{"role":"system","content":"s"},{"role":"user","content":"q"},{"role":"assistant","content":"a"},{"role":"user","content":"m"}]}`},
		{"tools", `{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"tool_use","id":"t1","name":"f","input":{"x":1}},{"type":"tool_use","id":"t2","name":"g","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"1"},{"type":"tool_result","tool_use_id":"t2","content":[{"type":"text","text":"2"}]},{"type":"text","text":"go on"}]}],"tools":[{"name":"f","description":"d","input_schema":{"type":"object"}},{"type":"web_search_20250305","name":"web_search"}]}`,
			`{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\": 1}"}},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":"1"},{"role":"tool","tool_call_id":"b","content":"2"},{"role":"user","content":"go on"}],"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}]}`},
		{"thinking", `{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"x"},{"type":"redacted_thinking","data":"x"},{"type":"text","text":"a"}]},{"role":"user","content":"m"}]}`,
			`{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"},{"role":"user","content":"m"}]}`},
		{"what is not meant for a model", `{"system":[{"type":"text","text":"x-anthropic-billing-header: 7"},{"type":"text","text":"s"}],"messages":[{"role":"user","content":"q"},{"role":"system","content":"later"}]}`,
			`{"messages":[{"role":"system","content":"s"},{"role":"user","content":"q"},{"role":"system","content":"later"}]}`},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m, err := ParseMessages([]byte(tc.messages))
			if err != nil {
				t.Fatal(err)
			}
			c, err := ParseChat([]byte(tc.chat))
			if err != nil {
				t.Fatal(err)
			}
			a, b := keys(rootKey(m.Tools, m.Variables), m.Messages), keys(rootKey(c.Tools, c.Variables), c.Messages)
			if len(a) != len(b) || a[len(a)-1] != b[len(b)-1] {
				t.Errorf("read as %+v with tools %s, want %+v with %s", m.Messages, m.Tools, c.Messages, c.Tools)
			}
			body, _ := json.Marshal(map[string]any{"messages": m.Raw})
			again, err := ParseChat(body) // what the chat template gets says the same
			if err != nil {
				t.Fatal(err)
			}
			if r := keys(Key{}, again.Messages); r[len(r)-1] != keys(Key{}, c.Messages)[len(r)-1] {
				t.Errorf("the chat template gets %s", body)
			}
		})
	}
}

func TestMessagesThatASessionRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, body, want string }{
		{"no JSON", `x`, "JSON"},
		{"no messages", `{}`, "at least one"},
		{"image", `{"messages":[{"role":"user","content":[{"type":"image"}]}]}`, `"image"`},
		{"image in a result", `{"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"image"}]}]}]}`, `"image"`},
		{"forced tool", `{"messages":[{"role":"user","content":"q"}],"tool_choice":{"type":"any"}}`, "tool_choice"},
		{"role", `{"messages":[{"role":"tool","content":"q"}]}`, "role"},
		{"a tool without a name", `{"messages":[{"role":"user","content":"q"}],"tools":[{}]}`, "no name"},
	}
	for _, tc := range tests {
		if _, err := ParseMessages([]byte(tc.body)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want something about %s", tc.name, err, tc.want)
		}
	}
}

func TestAnswersInTheFormOfMessages(t *testing.T) {
	t.Parallel()
	r := &Reply{ID: "msg_1", Model: "m", Finish: "tool_calls", Prompt: 7, Output: 3, Answer: Message{Role: "assistant",
		Parts: []Part{
			{Kind: Text, Text: "see"}, {Kind: ToolCall, ID: "call_1", Name: "f", Arguments: json.RawMessage(`{"x": 1}`)}}}}
	whole := gjson.ParseBytes(r.Messages())
	if whole.Get("stop_reason").Str != "tool_use" || whole.Get("content.0.text").Str != "see" ||
		whole.Get("content.1.input.x").Int() != 1 || whole.Get("usage.output_tokens").Int() != 3 ||
		whole.Get("type").Str != "message" {
		t.Errorf("in one piece: %s", whole.Raw)
	}
	var kinds []string
	text, arguments := "", ""
	for _, event := range strings.Split(strings.TrimSpace(string(r.MessagesStream())), "\n\n") {
		name, data, _ := strings.Cut(event, "\ndata: ")
		v := gjson.Parse(data)
		if "event: "+v.Get("type").Str != name {
			t.Errorf("event %q has the type %q", name, v.Get("type").Str)
		}
		kinds = append(kinds, v.Get("type").Str)
		text += v.Get("delta.text").Str
		arguments += v.Get("delta.partial_json").Str
	}
	want := "message_start content_block_start content_block_delta content_block_stop content_block_start " +
		"content_block_delta content_block_stop message_delta message_stop"
	if strings.Join(kinds, " ") != want || text != "see" || arguments != `{"x": 1}` {
		t.Errorf("streamed: %v, %q, %q", kinds, text, arguments)
	}
}

func FuzzParseMessages(f *testing.F) {
	f.Add([]byte(`{"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"1"}]}],"tools":[{"name":"f","input_schema":{}}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		q, err := ParseMessages(body)
		if err == nil {
			checkSent(t, q)
		}
	})
}
