// Package toolcall shows tools to a model and reads its calls, in the form that Hermes and Qwen models are trained on:
// the functions as JSON between <tools> tags in the system prompt, each call as JSON between <tool_call> tags, each
// result between <tool_response> tags in a turn of the user. It stands in the text of messages, so that it does not
// depend on the chat template or on a server's parser.
package toolcall

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/recipe-rl/recipe/internal/hermes"
)

// Tool is what the model is told of a tool.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"` // JSON schema of its arguments
}

// Call is one call.
type Call struct {
	Name      string
	Arguments map[string]any
}

type function struct {
	Type     string `json:"type"`
	Function Tool   `json:"function"`
}

// Prompt tells the model of the tools.
func Prompt(tools []Tool) (string, error) {
	var b strings.Builder
	lines := json.NewEncoder(&b)
	lines.SetEscapeHTML(false) // the model reads <, not \u003c
	b.WriteString("# Tools\n\nYou may call one or more functions to assist with the user query.\n\n" +
		"You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n")
	for _, t := range tools {
		if len(t.Parameters) == 0 || string(t.Parameters) == "null" {
			t.Parameters = json.RawMessage(`{"type": "object", "properties": {}}`)
		}
		if err := lines.Encode(function{Type: "function", Function: t}); err != nil {
			return "", fmt.Errorf("encode the tool %s: %w", t.Name, err)
		}
	}
	b.WriteString("</tools>\n\nFor each function call, return a json object with function name and arguments within " +
		"<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": " +
		"<args-json-object>}\n</tool_call>")
	return b.String(), nil
}

// ErrMalformed is a call that cannot be read: a mistake of the model, to be answered to it.
var ErrMalformed = hermes.ErrMalformed

// Parse reads the calls of one answer, none when it holds none. The end tag of the last call may be missing, since a
// server may stop there.
func Parse(text string) ([]Call, error) {
	found, _, err := hermes.Parse(text)
	if err != nil {
		return nil, err
	}
	var calls []Call
	for _, c := range found {
		call := Call{Name: c.Name, Arguments: map[string]any{}}
		if json.Unmarshal(c.Arguments, &call.Arguments) != nil {
			return nil, ErrMalformed
		}
		calls = append(calls, call)
	}
	return calls, nil
}

// Response is what the model reads as the results of its calls, in their order.
func Response(results []string) string {
	parts := make([]string, len(results))
	for i, r := range results {
		parts[i] = "<tool_response>\n" + r + "\n</tool_response>"
	}
	return strings.Join(parts, "\n")
}
