package toolcall_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk/environment/toolcall"
)

func TestParse(t *testing.T) {
	t.Parallel()
	call := toolcall.Call{Name: "add", Arguments: map[string]any{"a": 1.0}}
	for text, want := range map[string][]toolcall.Call{
		"no call": nil,
		"<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>":                       {call},
		`I think. <tool_call>{"name": "add", "arguments": {"a": 1}}`:                                      {call},
		`<tool_call>{"name": "now"}</tool_call>`:                                                          {{Name: "now", Arguments: map[string]any{}}},
		`<tool_call>{"name": "now", "arguments": null}</tool_call>`:                                       {{Name: "now", Arguments: map[string]any{}}},
		`<tool_call>{"name":"add","arguments":{"a":1}}</tool_call> <tool_call>{"name":"now"}</tool_call>`: {call, {Name: "now", Arguments: map[string]any{}}},
	} {
		got, err := toolcall.Parse(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"<tool_call>", "<tool_call></tool_call>", "<tool_call>add(1)</tool_call>",
		`<tool_call>{"arguments": {}}</tool_call>`, `<tool_call>{"name": "add", "arguments": [1]}</tool_call>`,
		`<tool_call>{"name": 3}</tool_call>`} {
		if got, err := toolcall.Parse(text); !errors.Is(err, toolcall.ErrMalformed) {
			t.Errorf("%q: %+v, %v; want it refused", text, got, err)
		}
	}
}

func TestPromptHoldsEachToolOnALineOfJSON(t *testing.T) {
	t.Parallel()
	text, err := toolcall.Prompt([]toolcall.Tool{{Name: "now", Description: "The time"}, {Name: "add",
		Parameters: json.RawMessage(`{"type":"object"}`)}})
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(text, "<tools>\n")
	inner, _, found := strings.Cut(after, "\n</tools>")
	lines := strings.Split(inner, "\n")
	if !found || len(lines) != 2 {
		t.Fatalf("the prompt is %s", text)
	}
	for _, line := range lines {
		var f struct{ Function toolcall.Tool }
		if err := json.Unmarshal([]byte(line), &f); err != nil || f.Function.Name == "" || f.Function.Parameters == nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// FuzzParse: whatever a model says, it is read or refused, and what is read has a name.
func FuzzParse(f *testing.F) {
	f.Add(`<tool_call>{"name":"add","arguments":{"a":1}}</tool_call>`)
	f.Add("<tool_call><tool_call></tool_call>")
	f.Fuzz(func(t *testing.T, text string) {
		calls, err := toolcall.Parse(text)
		for _, c := range calls {
			if err != nil || c.Name == "" || c.Arguments == nil {
				t.Fatalf("%q: %+v, %v", text, calls, err)
			}
		}
	})
}
