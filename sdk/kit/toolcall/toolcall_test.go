package toolcall_test

import (
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/recipe-rl/recipe/sdk/kit/toolcall"
)

// cases is the table that the Python side is held to as well (sdk/python/tests/test_tools.py).
var cases = sync.OnceValues(func() (table struct {
	Answers []struct {
		Name, Text string
		Calls      []*struct {
			Name      string
			Arguments map[string]any
		} // nil: malformed
	}
	Prompt struct {
		Tools         []toolcall.Tool
		Before, After string
		Holds         []string
	}
	Response struct {
		Results []string
		Text    string
	}
}, err error) {
	data, err := os.ReadFile("testdata/cases.json")
	if err != nil {
		return table, err
	}
	return table, json.Unmarshal(data, &table)
})

func TestParse(t *testing.T) {
	t.Parallel()
	table, err := cases()
	if err != nil || len(table.Answers) == 0 {
		t.Fatalf("%d cases, %v", len(table.Answers), err)
	}
	for _, c := range table.Answers {
		var want []toolcall.Call
		var refused error
		for _, call := range c.Calls {
			if call == nil {
				want, refused = nil, toolcall.ErrMalformed // one that cannot be read refuses the answer
				break
			}
			want = append(want, toolcall.Call{Name: call.Name, Arguments: call.Arguments})
		}
		if got, err := toolcall.Parse(c.Text); !errors.Is(err, refused) || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %q gives %+v, %v; want %+v, %v", c.Name, c.Text, got, err, want, refused)
		}
	}
}

func TestPromptHoldsEachToolOnALineOfJSON(t *testing.T) {
	t.Parallel()
	table, err := cases()
	if err != nil {
		t.Fatal(err)
	}
	want := table.Prompt
	text, err := toolcall.Prompt(want.Tools)
	if err != nil {
		t.Fatal(err)
	}
	inner, before := strings.CutPrefix(text, want.Before)
	inner, after := strings.CutSuffix(inner, want.After)
	lines := strings.Split(inner, "\n")
	if !before || !after || len(lines) != len(want.Tools) {
		t.Fatalf("the prompt is %s", text)
	}
	for i, line := range lines {
		var got struct {
			Type     string
			Function struct {
				Name, Description string
				Parameters        any
			}
		}
		var parameters any
		if err := errors.Join(json.Unmarshal([]byte(line), &got),
			json.Unmarshal(want.Tools[i].Parameters, &parameters)); err != nil {
			t.Fatal(err)
		}
		if f := got.Function; got.Type != "function" || f.Name != want.Tools[i].Name ||
			f.Description != want.Tools[i].Description || !reflect.DeepEqual(f.Parameters, parameters) ||
			!strings.Contains(line, want.Holds[i]) {
			t.Errorf("tool %d is shown as %s", i, line)
		}
	}
	if text, err := toolcall.Prompt([]toolcall.Tool{{Name: "now"}}); err != nil ||
		!strings.Contains(text, `"parameters":{"type":"object"`) {
		t.Errorf("a tool without a schema: %s, %v", text, err)
	}
}

func TestResponse(t *testing.T) {
	t.Parallel()
	table, err := cases()
	if got := toolcall.Response(table.Response.Results); err != nil || got != table.Response.Text {
		t.Errorf("%q, %v; want %q", got, err, table.Response.Text)
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
