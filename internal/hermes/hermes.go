// Package hermes reads calls of tools out of a text in the form that Hermes and Qwen models write them: each a JSON
// object {"name": …, "arguments": {…}} between <tool_call> and </tool_call>.
package hermes

import (
	"encoding/json"
	"errors"
	"strings"
)

// Call is one call.
type Call struct {
	Name      string
	Arguments json.RawMessage // an object
}

// ErrMalformed is a call that cannot be read: a mistake of the model, to be answered to it.
var ErrMalformed = errors.New("a tool call must be one JSON object {\"name\": …, \"arguments\": {…}} between " +
	"<tool_call> and </tool_call>")

const (
	begins = "<tool_call>"
	ends   = "</tool_call>"
)

// Parse reads the calls of one answer, none when it holds none, and the text around them. The end tag of the last call
// may be missing, since a server may stop there.
func Parse(text string) (calls []Call, around string, err error) {
	var rest strings.Builder
	for {
		before, after, found := strings.Cut(text, begins)
		rest.WriteString(before)
		if !found {
			return calls, rest.String(), nil
		}
		inner, next, _ := strings.Cut(after, ends)
		call, err := read(strings.TrimSpace(inner))
		if err != nil {
			return nil, "", err
		}
		calls, text = append(calls, call), next
	}
}

// read decodes one call. Keys are looked up in a map: a struct would take them in any case, {"Name": …} too.
func read(text string) (Call, error) {
	var c map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &c) != nil {
		return Call{}, ErrMalformed
	}
	call := Call{Arguments: json.RawMessage(`{}`)}
	if json.Unmarshal(c["name"], &call.Name) != nil || call.Name == "" {
		return Call{}, ErrMalformed
	}
	if given := c["arguments"]; given != nil && string(given) != "null" {
		var object map[string]json.RawMessage
		if json.Unmarshal(given, &object) != nil {
			return Call{}, ErrMalformed
		}
		call.Arguments = given
	}
	return call, nil
}
