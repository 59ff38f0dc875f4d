package session

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

func TestResponsesAreTheSameConversation(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, responses, chat string }{
		{"a text", `{"input":"q"}`, `{"messages":[{"role":"user","content":"q"}]}`},
		{"instructions and messages", `{"instructions":"s","input":[{"role":"user","content":[{"type":"input_text","text":"q"}]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}]},{"role":"user","content":"m"}]}`,
			`{"messages":[{"role":"system","content":"s"},{"role":"user","content":"q"},{"role":"assistant","content":"a"},{"role":"user","content":"m"}]}`},
		{"calls", `{"input":[{"role":"user","content":"q"},{"type":"reasoning","summary":[]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}]},{"type":"function_call","call_id":"x","name":"f","arguments":"{\"x\":1}"},{"type":"function_call","call_id":"y","name":"g","arguments":"{}"},{"type":"function_call_output","call_id":"x","output":"1"},{"type":"function_call_output","call_id":"y","output":[{"type":"input_text","text":"2"}]}],"tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object"}},{"type":"web_search"},{"type":"custom","name":"patch"}]}`,
			`{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{\"x\": 1}"}},{"id":"b","function":{"name":"g","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":"1"},{"role":"tool","tool_call_id":"b","content":"2"}],"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}]}`},
		{"a namespace of tools", `{"input":"q","tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f","parameters":{}}]}]}`,
			`{"messages":[{"role":"user","content":"q"}],"tools":[{"type":"function","function":{"name":"f","parameters":{}}}]}`},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r, err := ParseResponses([]byte(tc.responses))
			if err != nil {
				t.Fatal(err)
			}
			c, err := ParseChat([]byte(tc.chat))
			if err != nil {
				t.Fatal(err)
			}
			a, b := keys(rootKey(r.Tools, nil), r.Messages), keys(rootKey(c.Tools, nil), c.Messages)
			if len(a) != len(b) || a[len(a)-1] != b[len(b)-1] {
				t.Errorf("read as %+v with tools %s, want %+v with %s", r.Messages, r.Tools, c.Messages, c.Tools)
			}
		})
	}
}

func TestResponsesThatASessionRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, body, want string }{
		{"no JSON", `x`, "JSON"},
		{"no input", `{}`, "input"},
		{"stored input", `{"input":"q","previous_response_id":"r"}`, "previous_response_id"},
		{"in the background", `{"input":"q","background":true}`, "background"},
		{"forced tool", `{"input":"q","tool_choice":"required"}`, "tool_choice"},
		{"forced format", `{"input":"q","text":{"format":{"type":"json_schema"}}}`, "text.format"},
		{"image", `{"input":[{"role":"user","content":[{"type":"input_image"}]}]}`, "input_image"},
		{"an item of a provider", `{"input":[{"type":"web_search_call"}]}`, "web_search_call"},
		{"role", `{"input":[{"role":"tool","content":"x"}]}`, "role"},
	}
	for _, tc := range tests {
		if _, err := ParseResponses([]byte(tc.body)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want something about %s", tc.name, err, tc.want)
		}
	}
}

func TestAnswersInTheFormOfResponses(t *testing.T) {
	t.Parallel()
	r := &Reply{ID: "resp_1", Model: "m", Finish: "tool_calls", Prompt: 7, Output: 3, Answer: Message{Role: "assistant",
		Parts: []Part{
			{Kind: Text, Text: "see"}, {Kind: ToolCall, ID: "call_1", Name: "f", Arguments: json.RawMessage(`{"x": 1}`)}}}}
	whole := gjson.ParseBytes(r.Responses())
	if whole.Get("status").Str != "completed" || whole.Get("output.0.content.0.text").Str != "see" ||
		whole.Get("output.1.arguments").Str != `{"x": 1}` || whole.Get("usage.total_tokens").Int() != 10 {
		t.Errorf("in one piece: %s", whole.Raw)
	}
	var last gjson.Result
	text, arguments := "", ""
	for i, event := range strings.Split(strings.TrimSpace(string(r.ResponsesStream())), "\n\n") {
		_, data, _ := strings.Cut(event, "\ndata: ")
		last = gjson.Parse(data)
		if last.Get("sequence_number").Int() != int64(i) {
			t.Errorf("event %d has the number %s", i, last.Get("sequence_number").Raw)
		}
		switch last.Get("type").Str {
		case "response.output_text.delta":
			text += last.Get("delta").Str
		case "response.function_call_arguments.delta":
			arguments += last.Get("delta").Str
		}
	}
	if last.Get("type").Str != "response.completed" || last.Get("response").Raw != whole.Raw || text != "see" ||
		arguments != `{"x": 1}` {
		t.Errorf("streamed: %q, %q, and at the end %s", text, arguments, last.Raw)
	}
	r.Finish = "length"
	if cut := gjson.ParseBytes(r.Responses()); cut.Get("status").Str != "incomplete" ||
		cut.Get("incomplete_details.reason").Str != "max_output_tokens" {
		t.Errorf("cut: %s", cut.Raw)
	}
}

func FuzzParseResponses(f *testing.F) {
	f.Add([]byte(`{"instructions":"s","input":[{"role":"user","content":"q"},{"type":"function_call","call_id":"x","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"x","output":"1"}],"tools":[{"type":"function","name":"f"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		q, err := ParseResponses(body)
		if err == nil {
			checkSent(t, q)
		}
	})
}
