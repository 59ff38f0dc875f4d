package session

import (
	"fmt"
	"strings"
	"testing"
)

// TestSchemasThatKeepAnEngineBusy: an engine compiles the schema of an answer, and no end of the request stops it.
func TestSchemasThatKeepAnEngineBusy(t *testing.T) {
	t.Parallel()
	many := func(form string, n int) string {
		var parts []string
		for i := range n {
			parts = append(parts, fmt.Sprintf(form, i))
		}
		return strings.Join(parts, ",")
	}
	for _, test := range []struct{ name, schema, refusal string }{
		{"an ordinary one", `{"type":"object","properties":{"id":{"type":"string","maxLength":4000,"pattern":` +
			`"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"},"of":{"$ref":"#/$defs/N"}},"$defs":{"N":{"type":"integer"}}}`, ""},
		{"properties that are named as lengths",
			`{"properties":{"maxLength":{"type":"string"},"pattern":{"type":"string"}}}`, ""},
		{"definitions that name each other",
			`{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}`, ""},
		{"a long text", `{"type":"string","maxLength":1000000000}`, "repetitions in patterns of at most 20000"},
		{"long texts", `{"properties":{` + many(`"p%d":{"type":"string","maxLength":1000}`, 21) + `}}`, "got 2.1e+04"},
		{"a long list", `{"type":"array","minItems":1e300}`, "got 1e+300"},
		{"a pattern", `{"type":"string","pattern":"^(a|aa)*(b{0,5000}c{0,5000}){0,500}$"}`, "got 5e+06"},
		{"a pattern of names", `{"patternProperties":{"^((x{99}){99}){99}$":{}}}`, "got 9.703e+05"},
		{"numbers beyond all", `{"pattern":"a{99999999999999999999999}"}`, "got 1.845e+19"},
		{"values", `{"enum":[` + many("%d", maxSchemaValues) + `]}`, "of at most 4096 values"},
		{"depth", strings.Repeat(`{"not":`, maxSchemaDepth+1) + "true" + strings.Repeat("}", maxSchemaDepth+1),
			"at most 64 lists and objects within each other"},
		{"bytes", `{"title":"` + strings.Repeat("x", maxSchemaBytes) + `"}`, "of at most 131072 bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			const question = `{"messages":[{"role":"user","content":"q"}],`
			for form, body := range map[string]string{
				"response_format": question + `"response_format":{"type":"json_schema","json_schema":{"schema":` +
					test.schema + `}}}`,
				"tool_choice": question + `"tool_choice":"required","tools":[{"type":"function","function":{"name":"t",` +
					`"parameters":` + test.schema + `}}]}`,
			} {
				_, err := ParseChat([]byte(body))
				if err == nil && test.refusal == "" || err != nil && test.refusal != "" && strings.HasPrefix(err.Error(), form) &&
					(strings.Contains(err.Error(), test.refusal) || form == "tool_choice" && test.name == "depth") {
					continue
				}
				t.Errorf("%s: %v, expected a refusal with %q", form, err, test.refusal)
			}
		})
	}
}

func TestPatternCost(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]float64{"": 0, "abc": 3, "a{3}": 3, "a{2,5}b": 6, "(ab){10}": 20,
		"[^x\\]]{4}": 4, `\{9}`: 3, "((a{10}){10}b){2,}": 202, "{": 1, "a{x}": 4, ")": 1, "(": 0, `a\`: 2, "[a": 1,
		"x{7,3}": 7} {
		if got := patternCost(pattern); got != want {
			t.Errorf("%q costs %v, expected %v", pattern, got, want)
		}
	}
}

func FuzzPatternCost(f *testing.F) {
	f.Add(`^(a|[b\]]{2,}){3}\d$`)
	f.Fuzz(func(t *testing.T, pattern string) {
		if cost := patternCost(pattern); cost < 0 {
			t.Errorf("%q costs %v", pattern, cost)
		}
	})
}
