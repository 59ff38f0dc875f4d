package schema_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/input"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/spec"
)

func mustLoad(tb testing.TB, src string) *schema.Recipe {
	tb.Helper()
	r, diags := schema.LoadSource("test.hcl", []byte(src),
		schema.Options{Plugins: fakePlugins(tb), Environ: []string{"HF_TOKEN=hf_secret"}})
	if diags.HasErrors() {
		tb.Fatal(diags)
	}
	return r
}

func address(tb testing.TB, text string) addr.Block {
	tb.Helper()
	a, err := addr.Parse(text)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

func outputsOf(tb testing.TB, values ...any) map[addr.Block]cty.Value {
	tb.Helper()
	out := map[addr.Block]cty.Value{}
	for i := 0; i < len(values); i += 2 {
		schema, err := spec.Of(values[i+1])
		if err != nil {
			tb.Fatal(err)
		}
		v, err := spec.Encode(schema, values[i+1])
		if err != nil {
			tb.Fatal(err)
		}
		out[address(tb, values[i].(string))] = v
	}
	return out
}

const loop = `
locals {
  url    = inference.vllm.policy.base_url
  shared = { url = local.url, fixed = 3 }
}
inference "vllm" "policy" {
  model = "m"
  token = env("HF_TOKEN")
}
inference "vllm" "judge" { model = inference.vllm.policy.tokenizer }
environment "atropos" "e" {
  count     = 2
  inference = inference.vllm.policy
  judge     = inference.vllm.judge
  config    = local.shared
  script    = "${count.index}.py"
}
trainer "grpo" "t" {
  model        = "m"
  environments = environment.atropos.e
  steps        = 3
  environment_variables = { URL = local.url, KEY = inference.vllm.policy.api_key }
  lifecycle {
    precondition {
      condition     = inference.vllm.policy.max_model_len >= 1024
      error_message = "Context is ${inference.vllm.policy.max_model_len}."
    }
    postcondition {
      condition     = self.step > 0 && self.batch_size == 64
      error_message = "No step."
    }
  }
}
output "checkpoint" { value = trainer.grpo.t.checkpoint }
output "key" {
  value     = inference.vllm.policy.api_key
  sensitive = true
}
`

func TestEvaluateUsesRealOutputs(t *testing.T) {
	t.Parallel()
	r := mustLoad(t, loop)
	values := outputsOf(t, "inference.vllm.policy", outputs.Inference{BaseURL: "http://p/v1", APIKey: "k1",
		Tokenizer: "tok", MaxModelLen: 2048},
		"inference.vllm.judge", outputs.Inference{BaseURL: "http://j/v1"})
	v, _, diags := r.Evaluate(address(t, "environment.atropos.e[1]"), values)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	var config fakeEnvironment
	delete(values, address(t, "trajectories.builtin.default"))
	schemaOf := r.Lookup(address(t, "environment.atropos.e[1]")).Schema.Config
	if err := spec.Decode(v, schemaOf, &config); err != nil {
		t.Fatal(err)
	}
	var inference, judge outputs.Inference
	if err := config.Inference.Decode(&inference); err != nil {
		t.Fatal(err)
	}
	if err := config.Judge.Decode(&judge); err != nil {
		t.Fatal(err)
	}
	if inference.BaseURL != "http://p/v1" || inference.APIKey != "k1" || judge.BaseURL != "http://j/v1" ||
		config.Script != "1.py" || config.Config["url"] != "http://p/v1" || config.Config["fixed"] != int64(3) {
		t.Errorf("%+v %+v %+v", config, inference, judge)
	}
	if got := config.Judge.Values.GetAttr("model"); got.IsKnown() && !got.IsNull() && got.AsString() == "m" {
		t.Error("an output of the same name must stand over the configuration")
	}
	// The judge's own model comes from the policy's outputs.
	v, _, diags = r.Evaluate(address(t, "inference.vllm.judge"), values)
	if diags.HasErrors() || v.GetAttr("model").AsString() != "tok" {
		t.Errorf("%v %#v", diags, v.GetAttr("model"))
	}
	// Before any block has started, the same evaluation gives an unknown value.
	v, _, diags = r.Evaluate(address(t, "inference.vllm.judge"), nil)
	if diags.HasErrors() || v.GetAttr("model").IsKnown() {
		t.Errorf("%v %#v", diags, v.GetAttr("model"))
	}
}

func TestEvaluateGivesMetaArguments(t *testing.T) {
	t.Parallel()
	r := mustLoad(t, loop)
	values := outputsOf(t, "inference.vllm.policy", outputs.Inference{BaseURL: "http://p/v1", APIKey: "k1",
		MaxModelLen: 2048})
	_, meta, diags := r.Evaluate(address(t, "trainer.grpo.t"), values)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	key, marks := meta.Environment["KEY"].Unmark()
	if meta.Environment["URL"].AsString() != "http://p/v1" || key.AsString() != "k1" || len(marks) != 1 {
		t.Errorf("%#v", meta.Environment)
	}
	if before := r.Lookup(address(t, "trainer.grpo.t")).Meta.Environment["URL"]; before.IsKnown() {
		t.Error("the loaded recipe must stay as it was")
	}
}

func TestChecksOfBlocks(t *testing.T) {
	t.Parallel()
	r := mustLoad(t, loop)
	a := address(t, "trainer.grpo.t")
	checks := r.Lookup(a).Meta.Lifecycle
	for name, c := range map[string]struct {
		check   int
		outputs map[addr.Block]cty.Value
		ok      bool
		message string
	}{
		"unknown holds": {0, nil, true, ""},
		"precondition holds": {0, outputsOf(t, "inference.vllm.policy", outputs.Inference{MaxModelLen: 1024}), true,
			""},
		"precondition fails": {0, outputsOf(t, "inference.vllm.policy", outputs.Inference{MaxModelLen: 512}), false,
			"Context is 512."},
		"postcondition holds": {1, outputsOf(t, "trainer.grpo.t", outputs.Trainer{Step: 1}), true, ""},
		"postcondition fails": {1, outputsOf(t, "trainer.grpo.t", outputs.Trainer{Step: 0}), false, "No step."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ok, message, diags := r.EvaluateCheck(checks[c.check], a, c.outputs)
			if diags.HasErrors() || ok != c.ok || (!c.ok && message != c.message) {
				t.Errorf("%t %q %v", ok, message, diags)
			}
		})
	}
}

func TestEvaluateOutputs(t *testing.T) {
	t.Parallel()
	r := mustLoad(t, loop)
	values, diags := r.EvaluateOutputs(outputsOf(t, "trainer.grpo.t", outputs.Trainer{Checkpoint: "/c/7"},
		"inference.vllm.policy", outputs.Inference{APIKey: "k1"}))
	if diags.HasErrors() || values["checkpoint"].AsString() != "/c/7" {
		t.Fatal(diags, values)
	}
	if key, marks := values["key"].Unmark(); key.AsString() != "k1" || len(marks) == 0 {
		t.Error("a sensitive output must carry its mark")
	}
}

func TestEvaluateExpression(t *testing.T) {
	t.Parallel()
	r := mustLoad(t, loop)
	values := outputsOf(t, "inference.vllm.policy", outputs.Inference{BaseURL: "http://p/v1"})
	for src, want := range map[string]string{
		"1 + 2":              "3",
		"upper(local.url)":   `"HTTP://P/V1"`,
		"local.shared.fixed": "3",
		"[for e in environment.atropos.e : e.script]": `["0.py", "1.py"]`,
		"trainer.grpo.t.checkpoint":                   "?",
		"inference.vllm.policy.api_key":               "(sensitive)",
		"env(\"HF_TOKEN\")":                           "(ephemeral, sensitive)",
		"trainer.grpo.t":                              "→trainer.grpo.t",
	} {
		v, diags := r.EvaluateExpression(src, values)
		if diags.HasErrors() || text(v) != want {
			t.Errorf("%s: got %s %v, want %s", src, text(v), diags, want)
		}
	}
	for src, want := range map[string]string{"1 +": "Missing expression", "var.x": "Undeclared variable",
		"local.urll": "Did you mean", "nope()": "Unknown function", strings.Repeat("(", 1000): "Nested too deep"} {
		if _, diags := r.EvaluateExpression(src, nil); !diags.HasErrors() || !strings.Contains(diags.Error(), want) {
			t.Errorf("%.20s: got %v, want %s", src, diags, want)
		}
	}
}

func TestRecipeIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	r := mustLoad(t, loop)
	values := outputsOf(t, "inference.vllm.policy", outputs.Inference{BaseURL: "http://p/v1", MaxModelLen: 2048})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				for _, b := range r.Blocks {
					if _, _, diags := r.Evaluate(b.Addr, values); diags.HasErrors() {
						t.Error(diags)
					}
				}
				if _, diags := r.EvaluateOutputs(values); diags.HasErrors() {
					t.Error(diags)
				}
				if _, diags := r.EvaluateExpression("inference.vllm.policy.base_url", values); diags.HasErrors() {
					t.Error(diags)
				}
			}
		})
	}
	wg.Wait()
}

func TestUnknownAddress(t *testing.T) {
	t.Parallel()
	r := mustLoad(t, loop)
	nowhere := address(t, "trainer.grpo.nowhere")
	if r.Lookup(nowhere) != nil {
		t.Error("Lookup of an address that the recipe does not have must give nil")
	}
	if _, _, diags := r.Evaluate(nowhere, nil); !diags.HasErrors() {
		t.Error("Evaluate of an address that the recipe does not have must fail")
	}
}

func TestDiagnoseFindsThePlace(t *testing.T) {
	t.Parallel()
	r := mustLoad(t, `
inference "vllm" "p" {
  model     = "m"
  arguments = { a = "1", b = "2" }
}
environment "atropos" "e" {
  inference = inference.vllm.p
  tags      = ["x", "y"]
}
trainer "grpo" "t" {
  model        = "m"
  environments = [environment.atropos.e]
  steps        = 3
  reward { name = "a" }
  reward { name = "b" }
}`)
	for _, c := range []struct {
		address string
		path    cty.Path
		line    int
		column  int
	}{
		{"inference.vllm.p", cty.GetAttrPath("arguments").GetAttr("b"), 4, 30},
		{"environment.atropos.e", cty.GetAttrPath("tags").IndexInt(1), 8, 21},
		{"trainer.grpo.t", cty.GetAttrPath("reward").IndexInt(1).GetAttr("name"), 15, 19},
		{"trainer.grpo.t", cty.GetAttrPath("lora").GetAttr("rank"), 10, 1},
		{"trainer.grpo.t", nil, 10, 1},
	} {
		diags := r.Diagnose(address(t, c.address),
			[]spec.Problem{{Path: c.path, Summary: "s", Detail: "d", Warning: true}})
		if len(diags) != 1 || diags[0].Severity != hcl.DiagWarning || diags[0].Subject.Start.Line != c.line ||
			diags[0].Subject.Start.Column != c.column {
			t.Errorf("%s %v: %v", c.address, c.path, diags[0].Subject)
		}
	}
}

func TestDigestCoversWhatMatters(t *testing.T) {
	t.Parallel()
	const src = "variable \"a\" {\n  default = 1\n}\n"
	digest := func(src string, vars map[string]string) string {
		o := schema.Options{Vars: map[string]input.Value{}}
		for name, raw := range vars {
			o.Vars[name] = input.Value{Raw: raw}
		}
		r, diags := schema.LoadSource("x.hcl", []byte(src), o)
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		return r.Digest
	}
	first := digest(src, nil)
	if !strings.HasPrefix(first, "sha256:") || first != digest(src, nil) ||
		first != digest(src, map[string]string{"a": "1"}) {
		t.Error("the same recipe must have the same digest")
	}
	if first == digest(src, map[string]string{"a": "2"}) || first == digest(src+"\n", nil) {
		t.Error("another variable or another source must have another digest")
	}
	token := func(value string) string {
		r, diags := schema.LoadSource("x.hcl", []byte("variable \"t\" {\n  default = env(\"T\")\n}\n"),
			schema.Options{Environ: []string{"T=" + value}})
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		return r.Digest
	}
	if token("one") != token("two") {
		t.Error("what env yields is no part of the digest")
	}
	withFile := func(name string) string {
		return digest(`locals { x = file("testdata/files/`+name+`") }`+"\n", nil)
	}
	if withFile("hello.txt") == withFile("greeting.tmpl") {
		t.Error("the content of files that functions read belongs to the digest")
	}
}

func TestErrorsAtRunTimeShowNoSecrets(t *testing.T) {
	t.Parallel()
	r := mustLoad(t, `
inference "vllm" "p" { model = "m" }
inference "vllm" "q" { model = file(inference.vllm.p.api_key) }
output "o" {
  value     = file(inference.vllm.p.api_key)
  sensitive = true
}
`)
	values := outputsOf(t, "inference.vllm.p", outputs.Inference{APIKey: "hunter2"})
	_, _, first := r.Evaluate(address(t, "inference.vllm.q"), values)
	_, second := r.EvaluateOutputs(values)
	_, third := r.EvaluateExpression("file(inference.vllm.p.api_key)", values)
	for _, diags := range []hcl.Diagnostics{first, second, third} {
		if !diags.HasErrors() || strings.Contains(details(diags), "hunter2") ||
			!strings.Contains(details(diags), "(sensitive)") {
			t.Errorf("%v", diags)
		}
	}
}

// The outputs of a block that another one gets include values from a third.
func TestEvaluateSeesThroughBlocks(t *testing.T) {
	t.Parallel()
	r := mustLoad(t, `
inference "vllm" "first" { model = "m" }
inference "tiny" "second" {
  model = "m"
  wait  = inference.vllm.first.tokenizer
}
inference "tiny" "third" {
  model = "m"
  wait  = "${inference.tiny.second.wait}!"
}
environment "atropos" "e" {
  inference = inference.tiny.third
  script    = inference.tiny.third.wait
}
trainer "grpo" "t" {
  model        = "m"
  environments = [environment.atropos.e]
  steps        = 3
  dynamic "reward" {
    for_each = split(",", inference.vllm.first.tokenizer)
    content { name = reward.value }
  }
}
`)
	values := outputsOf(t, "inference.vllm.first", outputs.Inference{Tokenizer: "a,b"}, "inference.tiny.second",
		outputs.Inference{}, "inference.tiny.third", outputs.Inference{})
	v, _, diags := r.Evaluate(address(t, "environment.atropos.e"), values)
	if diags.HasErrors() || text(v.GetAttr("script")) != `"a,b!"` ||
		text(v.GetAttr("inference").GetAttr("wait")) != `"a,b!"` {
		t.Errorf("%v %s", diags, text(v.GetAttr("script")))
	}
	trainer := address(t, "trainer.grpo.t")
	if needs := r.Lookup(trainer).Needs; len(needs) != 3 || needs[1].On != address(t, "inference.vllm.first") {
		t.Errorf("for_each of a dynamic block is a need: %v", needs)
	}
	if v, _, diags = r.Evaluate(trainer, values); diags.HasErrors() || v.GetAttr("reward").LengthInt() != 2 {
		t.Errorf("%v %s", diags, text(v.GetAttr("reward")))
	}
}
