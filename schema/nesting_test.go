package schema_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"
	"pgregory.net/rapid"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
)

const surroundings = `
variable "model" { default = "m" }
variable "key" {
  default   = "hunter22"
  sensitive = true
}
locals {
  a = 3
  list = ["x", "y"]
  map = { one = "1", two = "2" }
  deep = { inner = { list = [1, 2] } }
}
inference "vllm" "p" {
  model = "m"
}
inference "vllm" "many" {
  count = 2
  model = "m"
}
inference "tiny" "each" {
  for_each = toset(["k"])
  model    = "m"
}
environment "atropos" "e" {
  inference = inference.vllm.p
}
`

// inner are expressions by their type: texts can be in templates and be keys.
var inner = map[bool][]string{
	true: {
		"var.model", `local.list[0]`, `local.map.one`, `local.map["two"]`, `"text"`, `"${var.model}-${local.a}"`,
		"inference.vllm.p.model", "inference.vllm.p.address",
		"inference.vllm.many[1].address", `inference.tiny.each["k"].model`, "upper(var.model)", "env(\"HF_TOKEN\")",
		`local.list[local.a - 2]`,
		"inference.vllm.many[local.a - 3].address", "inference.vllm.p.base_url", "(inference.vllm.many[*].base_url)[0]",
		"inference.vllm.p.nosuch", "local.nosuch", "nosuchfunction(1)", "nosuch", "local.list[7]",
		"path.module", "inference.vllm.none.address", "inference.vllm.many.address",
	},
	false: {
		"local.a", "1 + local.a * 2", "-local.a", "local.list", "local.map", "local.deep.inner.list[1]", "var.key",
		"inference.vllm.p", "inference.vllm.many", "inference.vllm.many[*].address",
		"inference.tiny.each", "environment.atropos.e", "null", "[local.a, var.model]", "{ x = local.a }",
		"local.a > 2 && true", "[for x in local.list : upper(x)]", "{for k, v in local.map : v => k}",
		"local.a ? 1 : 2", "inference.vllm.p.max_model_len",
	},
}

// around puts an expression inside another one of the same meaning. Those for texts only are separate.
var around = map[bool][]string{
	true: {
		`"${E}"`, `{for k in ["a"] : E => k...} == null ? "" : E`, `keys({(E) = 1})[0]`,
		`keys({for k in [1] : E => k})[0]`, `"%{ for x in [1] }${E}%{ endfor }"`, `"%{ if true }${E}%{ endif }"`,
		`trimprefix("=${E}", "=")`, `join("", [E])`, `keys({"${E}" = 1})[0]`, `format("%s", E)`,
	},
	false: {
		`(E)`, `[E][0]`, `{ a = E }.a`, `{ a = E }["a"]`, `[for i in [1] : E][0]`, `[for x in [E] : x][0]`,
		`{for k in ["a"] : k => E}["a"]`, `{for k, v in { a = E } : k => v}.a`,
		`[for i in [1] : [for j in [1] : E][0]][0]`, `[for i in [1] : [for j in [E] : j][0]][0]`,
		`[for i in [1] : i == 1 ? E : E][0]`, `true ? E : E`, `[for i in [1] : { a = E }][0].a`,
		`([E][*])[0]`, `([{ a = E }][*].a)[0]`, `[{ a = [E] }].0.a.0`, `[for i in [0] : [E][i]][0]`,
		`[for i in ["a"] : { a = E }[i]][0]`, `[for i in [1] : (E) if true][0]`,
		`[for i in [1] : E if [E] != null][0]`, `[for i, x in { a = E } : x][0]`,
		`{for x in [1] : "a" => E...}["a"][0]`, `[for i in [[E]] : i[0]][0]`, `values({ a = E })[0]`,
		`concat([E], [])[0]`,
		`{for i in [E] : "k" => i}.k`, `([[E]][0][*])[0]`, `element([E], 0)`,
		`[for inference in [1] : [for x in [1] : inference]] == null ? E : E`, `tuple(E)`,
	},
}

// nested draws an expression and the same one inside of others.
func nested(t *rapid.T) (alone, inside string) {
	textual := rapid.Bool().Draw(t, "textual")
	alone = rapid.SampledFrom(inner[textual]).Draw(t, "alone")
	inside = alone
	for range rapid.IntRange(1, 3).Draw(t, "depth") {
		wrappers := around[false]
		if textual && rapid.Bool().Draw(t, "as text") {
			wrappers = around[true]
		}
		inside = strings.ReplaceAll(rapid.SampledFrom(wrappers).Draw(t, "around"), "E", inside)
	}
	return alone, strings.ReplaceAll(inside, "tuple(", "(")
}

// meaning is the result of an expression: its type, its value where it is known, and whether it is secret.
func meaning(v cty.Value) string {
	plain, marks := v.UnmarkDeep()
	var secret []string
	for m := range marks {
		secret = append(secret, fmt.Sprint(m))
	}
	slices.Sort(secret)
	value := "unknown"
	if plain.IsWhollyKnown() {
		value = fmt.Sprintf("%#v", plain)
	}
	return fmt.Sprintf("%s %v", value, secret)
}

func summaries(r *schema.Recipe, src string) []string {
	_, diags := r.EvaluateExpression(src, nil)
	var out []string
	for _, d := range diags {
		out = append(out, d.Summary+": "+d.Detail)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// TestAnExpressionMeansTheSameInside: an expression alone, and the same one inside a for expression, a conditional, an
// index, a splat, a template, a call or an object, has the same value and the same errors, in the console, as a local
// value, and as an attribute of a block, which depends on the same blocks.
func TestAnExpressionMeansTheSameInside(t *testing.T) {
	t.Parallel()
	plugins := fakePlugins(t)
	o := schema.Options{Plugins: plugins, Environ: []string{"HF_TOKEN=hf_secret"}}
	r, diags := schema.LoadSource("testdata/valid/x.hcl", []byte(surroundings), o)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	outputs := map[addr.Block]cty.Value{}
	for _, name := range []string{"inference.vllm.p", "inference.vllm.many[0]", "inference.vllm.many[1]",
		`inference.tiny.each["k"]`} {
		outputs[address(t, name)] = cty.ObjectVal(map[string]cty.Value{"base_url": cty.StringVal("http://" + name),
			"model": cty.StringVal("m"), "max_model_len": cty.NumberIntVal(5)})
	}
	plain, within := address(t, "environment.atropos.alone"), address(t, "environment.atropos.inside")
	rapid.Check(t, func(t *rapid.T) {
		alone, inside := nested(t)
		wrong := summaries(r, alone)
		if got := summaries(r, inside); len(wrong) > 0 != (len(got) > 0) || len(wrong) > 0 &&
			!slices.Contains(got, wrong[0]) {
			t.Fatalf("console: %s is wrong by\n%q, inside of\n%s by\n%q", alone, wrong, inside, got)
		}
		for _, given := range []map[addr.Block]cty.Value{nil, outputs} {
			a, _ := r.EvaluateExpression(alone, given)
			b, _ := r.EvaluateExpression(inside, given)
			if len(wrong) == 0 && meaning(a) != meaning(b) {
				t.Fatalf("console: %s is %s, inside of\n%s\nit is %s", alone, meaning(a), inside, meaning(b))
			}
		}
		body := fmt.Sprintf(
			"locals {\n  alone = %s\n  inside = %s\n}\nenvironment \"atropos\" \"alone\" {\n  inference = "+
				"inference.vllm.p\n  free = %s\n}\nenvironment \"atropos\" \"inside\" {\n  inference = "+
				"inference.vllm.p\n  free = %s\n}\n", alone, inside, alone, inside)
		rr, diags := schema.LoadSource("testdata/valid/x.hcl", []byte(surroundings+body), o)
		if diags.HasErrors() != (len(wrong) > 0) {
			t.Fatalf("console says %q, validate says %v of\n%s", wrong, diags, inside)
		}
		if len(wrong) > 0 {
			return
		}
		x, y := rr.Lookup(plain), rr.Lookup(within)
		if meaning(x.Value.GetAttr("free")) != meaning(y.Value.GetAttr("free")) || needed(x) != needed(y) {
			t.Fatalf("plan: %s is %s and needs %s, inside of\n%s\nit is %s and needs %s", alone,
				meaning(x.Value.GetAttr("free")), needed(x), inside, meaning(y.Value.GetAttr("free")), needed(y))
		}
		v, _, _ := rr.Evaluate(x.Addr, outputs)
		w, _, _ := rr.Evaluate(y.Addr, outputs)
		if meaning(v.GetAttr("free")) != meaning(w.GetAttr("free")) {
			t.Fatalf("start: %s is %s, inside of\n%s\nit is %s", alone, meaning(v.GetAttr("free")), inside,
				meaning(w.GetAttr("free")))
		}
	})
}

func needed(b *schema.Block) string {
	var out []string
	for _, n := range b.Needs {
		out = append(out, n.On.String())
	}
	return strings.Join(out, " ")
}

// Forms that were once misunderstood: a reference that is the whole value of a for expression.
func TestReferencesInForExpressions(t *testing.T) {
	t.Parallel()
	src := surroundings + `
locals {
  r    = [for i in [1, 2] : local.a]
  urls = {for k in ["x"] : k => inference.vllm.p.base_url}
}
trainer "grpo" "p" {
  model        = "m"
  steps        = 1
  environments = [for i in [1] : environment.atropos.e]
}
`
	r, diags := schema.LoadSource("x.hcl", []byte(src),
		schema.Options{Plugins: fakePlugins(t), Environ: []string{"HF_TOKEN=x"}})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	if got := needed(r.Lookup(address(t, "trainer.grpo.p"))); !strings.Contains(got, "environment.atropos.e") {
		t.Errorf("the trainer needs %q", got)
	}
	if v, diags := r.EvaluateExpression("[for i in [1] : local.r][0]", nil); diags.HasErrors() || text(v) != "[3, 3]" {
		t.Errorf("%s, %v", text(v), diags)
	}
	if _, diags := schema.LoadSource("x.hcl", []byte("locals {\n  r = [for i in [1] : nosuch(i)]\n}\n"),
		schema.Options{}); !diags.HasErrors() || diags[0].Summary != "Unknown function" {
		t.Errorf("%v", diags)
	}
}
