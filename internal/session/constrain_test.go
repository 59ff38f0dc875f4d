package session

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// Each dialect has its own words for what must be answered.
func TestConstraints(t *testing.T) {
	t.Parallel()
	const (
		chat = `{"messages":[{"role":"user","content":"q"}],"tools":[` +
			`{"type":"function","function":{"name":"add","parameters":{"type":"object","properties":{"a":{"$ref":"#/$defs/N"}},` +
			`"$defs":{"N":{"type":"integer"},"M":{"$ref":"#/$defs/N"}}}}},` +
			`{"type":"function","function":{"name":"sub"}}]`
		messages  = `{"max_tokens":9,"messages":[{"role":"user","content":"q"}],"tools":[{"name":"add","input_schema":{"type":"object"}}]`
		responses = `{"input":"q","tools":[{"type":"function","name":"add","parameters":{"type":"object"}}]`
		inner     = "json_schema.schema."
	)
	parse := map[string]func([]byte) (*Query, error){"chat": ParseChat, "messages": ParseMessages,
		"responses": ParseResponses}
	for _, test := range []struct {
		name, dialect, body string
		calls               bool
		want                map[string]string // by path in the format; empty: no constraint
		refusal             string
	}{
		{name: "none", dialect: "chat", body: chat + `,"tool_choice":"auto","response_format":{"type":"text"}}`},
		{name: "any tool", dialect: "chat", body: chat + `,"tool_choice":"required"}`, calls: true, want: map[string]string{
			"type": `"json_schema"`, inner + "anyOf.1.properties.name.const": `"sub"`,
			inner + "anyOf.0.properties.arguments.properties.a.$ref": `"#/$defs/tool0_N"`,
			inner + "anyOf.0.properties.arguments.$defs":             ``,
			inner + "$defs.tool0_N.type":                             `"integer"`,
			inner + "$defs.tool0_M.$ref":                             `"#/$defs/tool0_N"`}},
		{name: "a tool", dialect: "chat", body: chat + `,"tool_choice":{"type":"function","function":{"name":"sub"}}}`,
			calls: true, want: map[string]string{inner + "properties.name.const": `"sub"`,
				inner + "properties.arguments.type": `"object"`}},
		{name: "a tool that is not offered", dialect: "chat",
			body: chat + `,"tool_choice":{"type":"function","function":{"name":"x"}}}`, refusal: `one of the tools, got "x"`},
		{name: "no tools", dialect: "chat", body: `{"messages":[{"role":"user","content":"q"}],"tool_choice":"required"}`,
			refusal: "want tools to choose from"},
		{name: "another choice", dialect: "chat", body: chat + `,"tool_choice":{"type":"custom"}}`, refusal: "tool_choice"},
		{name: "a schema that holds itself", dialect: "chat", body: `{"messages":[{"role":"user","content":"q"}],` +
			`"tool_choice":"required","tools":[{"type":"function","function":{"name":"t","parameters":{"properties":` +
			`{"a":{"$ref":"#"}}}}}]}`, refusal: "to itself"},
		{name: "a schema", dialect: "chat", body: chat + `,"response_format":{"type":"json_schema","json_schema":` +
			`{"name":"n","strict":true,"schema":{"type":"object"}}}}`,
			want: map[string]string{inner + "type": `"object"`}},
		{name: "no schema", dialect: "chat", body: chat + `,"response_format":{"type":"json_schema"}}`,
			refusal: "want a schema"},
		{name: "any object", dialect: "chat", body: chat + `,"response_format":{"type":"json_object"}}`,
			want: map[string]string{"type": `"json_object"`}},
		{name: "messages, any tool", dialect: "messages", body: messages + `,"tool_choice":{"type":"any"}}`, calls: true,
			want: map[string]string{inner + "properties.name.const": `"add"`}},
		{name: "messages, a tool", dialect: "messages", body: messages + `,"tool_choice":{"type":"tool","name":"add"}}`,
			calls: true, want: map[string]string{inner + "properties.name.const": `"add"`}},
		{name: "messages, no such tool", dialect: "messages", body: messages + `,"tool_choice":{"type":"tool","name":"x"}}`,
			refusal: "one of the tools"},
		{name: "responses, a tool", dialect: "responses", body: responses + `,"tool_choice":{"type":"function","name":"add"}}`,
			calls: true, want: map[string]string{inner + "properties.name.const": `"add"`}},
		{name: "responses, a schema", dialect: "responses", body: responses + `,"text":{"format":{"type":"json_schema",` +
			`"name":"n","schema":{"type":"array"}}}}`, want: map[string]string{inner + "type": `"array"`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			q, err := parse[test.dialect]([]byte(test.body))
			switch {
			case test.refusal != "":
				if err == nil || !strings.Contains(err.Error(), test.refusal) {
					t.Errorf("got %v, want a refusal with %q", err, test.refusal)
				}
				return
			case err != nil:
				t.Fatal(err)
			case len(test.want) == 0:
				if q.Constraint != nil {
					t.Errorf("constraint %s, want none", q.Constraint.Format)
				}
				return
			case q.Constraint == nil:
				t.Fatal("no constraint")
			}
			if q.Constraint.Calls != test.calls {
				t.Errorf("calls %t, want %t", q.Constraint.Calls, test.calls)
			}
			for path, want := range test.want {
				if got := gjson.GetBytes(q.Constraint.Format, path).Raw; got != want {
					t.Errorf("%s is %s, want %s: %s", path, got, want, q.Constraint.Format)
				}
			}
		})
	}
}

func TestForcedCalls(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"name": "add", "arguments": {"a": 1}}`: `add {"a": 1}`, `{"name":"add"}`: "", `{"arguments":{}}`: "", `add`: "", ``: "",
	} {
		name, arguments, ok := ForcedCall(text)
		if got := strings.TrimSpace(name + " " + string(arguments)); ok != (want != "") || got != want {
			t.Errorf("%s: %q, %t, want %q", text, got, ok, want)
		}
	}
}
