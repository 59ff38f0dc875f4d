// Package toolcall shows tools to a model and reads its calls, in the form that Hermes and Qwen models are trained on:
// the functions as JSON between <tools> tags in the system prompt, each call as JSON between <tool_call> tags, each
// result between <tool_response> tags in a turn of the user. It stands in the text of messages, so that it does not
// depend on the chat template or on a server's parser.
package toolcall

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
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

const (
	begins = "<tool_call>"
	ends   = "</tool_call>"
)

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
var ErrMalformed = errors.New("a tool call must be one JSON object {\"name\": …, \"arguments\": {…}} between " +
	"<tool_call> and </tool_call>")

// Parse reads the calls of one answer, none when it holds none. The end tag of the last call may be missing, since a
// server may stop there.
func Parse(text string) ([]Call, error) {
	var calls []Call
	for {
		_, after, found := strings.Cut(text, begins)
		if !found {
			return calls, nil
		}
		inner, rest, _ := strings.Cut(after, ends)
		call, err := read(strings.TrimSpace(inner))
		if err != nil {
			return nil, err
		}
		calls, text = append(calls, call), rest
	}
}

// read decodes one call. Keys are looked up in a map: a struct would take them in any case, {"Name": …} too.
func read(text string) (Call, error) {
	var c map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &c) != nil {
		return Call{}, ErrMalformed
	}
	call := Call{Arguments: map[string]any{}}
	if json.Unmarshal(c["name"], &call.Name) != nil || call.Name == "" {
		return Call{}, ErrMalformed
	}
	if given := c["arguments"]; given != nil && string(given) != "null" && json.Unmarshal(given, &call.Arguments) != nil {
		return Call{}, ErrMalformed
	}
	return call, nil
}

// Response is what the model reads as the results of its calls, in their order.
func Response(results []string) string {
	parts := make([]string, len(results))
	for i, r := range results {
		parts[i] = "<tool_response>\n" + r + "\n</tool_response>"
	}
	return strings.Join(parts, "\n")
}
