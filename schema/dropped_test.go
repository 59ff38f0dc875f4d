package schema_test

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/input"
)

// Attributes that the type of a value does not have are left out by its conversion: each is a warning.
func TestAttributesThatAConversionLeavesOut(t *testing.T) {
	t.Parallel()
	const recipe = `
variable "o" {
  type    = object({ lr = optional(number, 0.1), inner = optional(object({ steps = optional(number) }), {}) })
  default = {}
}
variable "l" {
  type    = list(object({ name = string }))
  default = []
}
variable "m" {
  type    = map(object({ name = optional(string) }))
  default = {}
}
variable "secret" {
  type      = object({ key = optional(string) })
  default   = {}
  sensitive = true
}
inference "tiny" "p" {
  model = "m"
  retry = RETRY
}
`
	tests := map[string]struct {
		vars  map[string]string
		retry string
		want  string // parts of the warnings, with | between them
	}{
		"nothing":           {vars: map[string]string{"o": "{ lr = 1 }", "l": `[{ name = "a" }]`}},
		"a name":            {vars: map[string]string{"o": "{ lrr = 1 }"}, want: `"o" has no attribute "lrr"`},
		"with a suggestion": {vars: map[string]string{"o": "{ inne = {} }"}, want: `Did you mean "inner"?`},
		"inside":            {vars: map[string]string{"o": "{ inner = { step = 1 } }"}, want: `"o" at inner has no attribute "step"`},
		"in a list, once": {vars: map[string]string{"l": `[{ name = "a", x = 1 }, { name = "b", x = 1 }]`},
			want: `"l" at [*] has no attribute "x"`},
		"in a map":    {vars: map[string]string{"m": `{ a = { nam = "a" } }`}, want: `"m" at [*] has no attribute "nam"`},
		"of a secret": {vars: map[string]string{"secret": `{ kee = "a" }`}},
		"of a block":  {retry: "{ times = 1, tims = 2 }", want: `"retry" in inference.tiny.p has no attribute "tims"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := schema.Options{Plugins: fakePlugins(t), Vars: map[string]input.Value{}}
			for name, raw := range tt.vars {
				o.Vars[name] = input.Value{Raw: raw}
			}
			retry := tt.retry
			if retry == "" {
				retry = "null"
			}
			_, diags := schema.LoadSource("x.hcl", []byte(strings.ReplaceAll(recipe, "RETRY", retry)), o)
			var got []string
			for _, d := range diags {
				if d.Summary == "Unknown attribute" {
					got = append(got, d.Detail)
				}
			}
			if diags.HasErrors() || len(got) > 1 || !strings.Contains(strings.Join(got, ""), tt.want) ||
				(tt.want == "") != (len(got) == 0) {
				t.Errorf("the warnings are %q, expected %q", got, tt.want)
			}
		})
	}
}
