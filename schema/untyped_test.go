package schema_test

import (
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/input"
)

// Text from the command line is not computed where any type is taken: dates, versions and revisions stay as they are.
func TestTextOfNoTypeIsNotComputed(t *testing.T) {
	t.Parallel()
	const recipe = `
variable "none" {}
variable "any" { type = any }
variable "text" { default = "d" }
variable "number" { default = 1e-6 }
variable "bool" { default = false }
inference "vllm" "p" { model = "m" }
environment "atropos" "e" {
  inference = inference.vllm.p
  config    = { text = "x", number = 3, inner = { bool = true } }
}
`
	text, number := cty.StringVal, cty.MustParseNumberVal
	tests := map[string]struct {
		raw                 string
		none                cty.Value // of a variable without a type and a default
		text, number, bools cty.Value // of one that has a default of this type; NilVal: as none
	}{
		"a date":           {raw: "2024-01-01", none: text("2024-01-01")},
		"a version":        {raw: "1.10", none: text("1.10"), number: number("1.1")},
		"zeros before it":  {raw: "007", none: text("007"), number: number("7")},
		"a fraction":       {raw: "1/2", none: text("1/2")},
		"a revision":       {raw: "7e10", none: text("7e10"), number: number("7e10")},
		"another revision": {raw: "23e4", none: text("23e4"), number: number("23e4")},
		"null":             {raw: "null", none: text("null")},
		"a whole number":   {raw: "600", none: number("600"), text: text("600")},
		"a long number": {raw: "12345678901234567890", none: number("12345678901234567890"),
			text: text("12345678901234567890")},
		"a decimal":             {raw: "-0.25", none: number("-0.25"), text: text("-0.25")},
		"a signed exponent":     {raw: "1e-6", none: number("1e-6"), text: text("1e-6")},
		"true":                  {raw: "true", none: cty.True, text: text("true"), bools: cty.True},
		"words":                 {raw: "a b", none: text("a b")},
		"an open bracket":       {raw: "[a", none: text("[a")},
		"nothing":               {raw: "", none: text("")},
		"a list":                {raw: "[1, true]", none: cty.TupleVal([]cty.Value{number("1"), cty.True})},
		"an object":             {raw: `{"a": 1}`, none: cty.ObjectVal(map[string]cty.Value{"a": number("1")})},
		"text in quotes":        {raw: `"600"`, none: text("600")},
		"a name of no variable": {raw: "main", none: text("main")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := map[string]cty.Value{"none": tt.none, "any": tt.none, "text": tt.text, "number": tt.number,
				"bool": tt.bools}
			o := schema.Options{Plugins: fakePlugins(t), Vars: map[string]input.Value{}}
			for v := range want {
				o.Vars[v] = input.Value{Raw: tt.raw}
				if want[v] == cty.NilVal {
					want[v] = tt.none
				}
			}
			if tt.raw != "null" { // it takes a value away
				for _, at := range []string{"text", "number", "inner.bool", "new"} {
					o.Set = append(o.Set, "environment.atropos.e.config."+at+"="+tt.raw)
				}
			}
			r, diags := schema.LoadSource("x.hcl", []byte(recipe), o)
			if diags.HasErrors() {
				t.Fatal(diags)
			}
			for v, want := range want {
				got, diags := r.EvaluateExpression("var."+v, nil)
				if diags.HasErrors() || !got.RawEquals(want) {
					t.Errorf("var.%s is %#v, expected %#v (%v)", v, got, want, diags)
				}
			}
			if tt.raw == "null" {
				return
			}
			block, _, diags := r.Evaluate(addr.Block{Kind: "environment", Plugin: "atropos", Name: "e"}, nil)
			if diags.HasErrors() {
				t.Fatal(diags)
			}
			config := block.GetAttr("config")
			for at, got := range map[string]cty.Value{"text": config.GetAttr("text"), "number": config.GetAttr("number"),
				"bool": config.GetAttr("inner").GetAttr("bool"), "none": config.GetAttr("new")} {
				if !got.RawEquals(want[at]) {
					t.Errorf("--set gives %#v in place of %s, expected %#v", got, at, want[at])
				}
			}
		})
	}
}
