package schema_test

import (
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema"
)

const settable = `
variable "rank" { default = 4 }
inference "vllm" "policy" {
  model = "m"
  arguments = { a = "1" }
}
inference "tiny" "other" { model = "o" }
environment "atropos" "e" {
  inference = inference.vllm.policy
  config    = { actor = { optim = { lr = 1e-6, name = "adam" } } }
  free      = jsondecode("{}")
}
trainer "grpo" "policy" {
  model        = "m"
  environments = [environment.atropos.e]
  steps        = 10
  reward { name = "right" }
  placement { gpus = 1 }
}
alert "fell" {
  metric  = "reward"
  fell    = 0.1
  webhook = "https://hooks.test/a"
}
`

func setIn(t *testing.T, given ...string) (*schema.Recipe, string) {
	t.Helper()
	r, diags := schema.LoadSource("x.hcl", []byte(settable), schema.Options{Plugins: fakePlugins(t), Set: given})
	if !diags.HasErrors() {
		return r, ""
	}
	var text []string
	for _, d := range diags {
		text = append(text, d.Summary+": "+d.Detail)
	}
	return r, strings.Join(text, "\n")
}

func TestAttributesAreSet(t *testing.T) {
	t.Parallel()
	number, word := cty.NumberFloatVal, cty.StringVal
	for given, want := range map[string]cty.Value{
		"trainer.grpo.policy.learning_rate=1e-6":                  number(1e-6),
		"trainer.grpo.policy.steps=5 * 2 + var.rank":              number(14),
		"trainer.grpo.policy.timeout=30m":                         word("30m"),
		"trainer.grpo.policy.lora.rank=var.rank":                  number(4),
		"trainer.grpo.policy.reward.weight=2":                     number(2),
		"inference.vllm.policy.model=Qwen/Qwen2.5-1.5B-Instruct":  word("Qwen/Qwen2.5-1.5B-Instruct"),
		"inference.vllm.policy.model=2.10":                        word("2.10"),
		"inference.vllm.policy.model=a=b":                         word("a=b"),
		"inference.vllm.policy.dtype=null":                        word("auto"),
		"inference.vllm.policy.arguments.b=2.10":                  word("2.10"),
		"environment.atropos.e.tags=[\"a\", \"b\"]":               cty.ListVal([]cty.Value{word("a"), word("b")}),
		"environment.atropos.e.config.actor.optim.lr=2e-6":        number(2e-6),
		"environment.atropos.e.config.actor.optim.name=adamw":     word("adamw"),
		"environment.atropos.e.config.model.path=org/model-1.5B":  word("org/model-1.5B"),
		"environment.atropos.e.config.model.rank=var.rank":        number(4),
		"environment.atropos.e.free=[1, true]":                    cty.TupleVal([]cty.Value{number(1), cty.True}),
		"inference.vllm.policy.arguments={ a = \"${var.rank}\" }": cty.MapVal(map[string]cty.Value{"a": word("4")}),
	} {
		r, problem := setIn(t, given)
		if problem != "" {
			t.Errorf("%s: %s", given, problem)
			continue
		}
		at, _, _ := strings.Cut(given, "=")
		parts := strings.Split(at, ".")
		v := r.Lookup(address(t, strings.Join(parts[:3], "."))).Value
		for _, name := range parts[3:] {
			if v.Type().IsListType() {
				v = v.Index(cty.NumberIntVal(0))
			}
			if v.Type().IsMapType() {
				v = v.Index(word(name))
			} else {
				v = v.GetAttr(name)
			}
		}
		if v, _ = v.UnmarkDeep(); !v.RawEquals(want) {
			t.Errorf("%s: got %#v, want %#v", given, v, want)
		}
	}
}

func TestWhatIsNotSetStays(t *testing.T) {
	t.Parallel()
	r, problem := setIn(t, "environment.atropos.e.config.actor.optim.lr=2e-6", "trainer.grpo.policy.placement.gpus=3",
		"environment.atropos.e.inference=inference.tiny.other", "alert.fell.fell=0.2",
		"trainer.grpo.policy.health.failures=7",
		"inference.tiny.other.count=2", "environment.atropos.e.inference=inference.tiny.other[1]")
	if problem != "" {
		t.Fatal(problem)
	}
	e := r.Lookup(address(t, "environment.atropos.e"))
	if name := e.Value.GetAttr("config").GetAttr("actor").GetAttr("optim").GetAttr("name"); name.AsString() != "adam" {
		t.Errorf("beside what was set: %#v", name)
	}
	if len(e.Needs) == 0 || e.Needs[0].On.String() != "inference.tiny.other[1]" {
		t.Errorf("the environment needs %v", e.Needs)
	}
	trainer := r.Lookup(address(t, "trainer.grpo.policy"))
	if trainer.Meta.Placement.GPUs != 3 || trainer.Meta.Health.Failures != 7 {
		t.Errorf("got %+v %+v", trainer.Meta.Placement, trainer.Meta.Health)
	}
	if r.Alerts[0].Value != 0.2 || r.Alerts[0].Metric != "reward" {
		t.Errorf("the alert is %+v", r.Alerts[0])
	}
	unset, _ := setIn(t)
	again, _ := setIn(t)
	if r.Digest == unset.Digest || unset.Digest != again.Digest {
		t.Error("a setting is no part of the digest")
	}
}

func TestSettingsThatCannotBe(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"trainer.grpo.policy.learning_rate":                   "expected ADDRESS.ATTRIBUTE=VALUE",
		"trainer.grpo.policy=1":                               "name an attribute of the block",
		"trainer.grpo.policy.=1":                              "name an attribute of the block",
		"=1":                                                  "the recipe has no such block",
		"trainer.grpo.polcy.steps=1":                          `Did you mean "trainer.grpo.policy"?`,
		"var.rank=1":                                          "a variable is set with --var",
		"module.a.trainer.grpo.policy.steps=1":                "takes its values from the module's arguments",
		"alert.rose.above=1":                                  "trainer.grpo.policy, trajectories.builtin.default.",
		"trainer.grpo.policy.learning_rat=1":                  `Did you mean "learning_rate"?`,
		"trainer.grpo.policy.learning_rate=fast":              `There is no "fast" here`,
		"trainer.grpo.policy.learning_rate=1e":                "is no value of type number",
		"trainer.grpo.policy.learning_rate=-1":                "at least 0",
		"trainer.grpo.policy.lora.rang=1":                     `Did you mean "rank"?`,
		"trainer.grpo.policy.lora=1":                          "lora is a block",
		"trainer.grpo.policy.steps=var.missing":               "missing",
		"environment.atropos.e.free.a=1":                      "is not written out as { … }",
		"environment.atropos.e.config.actor.optim.lr.value=1": "is not written out as { … }",
		"environment.atropos.e.inference=trainer.grpo.policy": "inference",
		"trainer.grpo.policy.placement.gpu=1":                 `Did you mean "gpus"?`,
	} {
		if _, problem := setIn(t, given); !strings.Contains(problem, want) {
			t.Errorf("%s: got %q, want %q", given, problem, want)
		}
	}
	if _, problem := setIn(t, "inference.tiny.other.count=2", "inference.tiny.other.for_each=[\"a\"]"); !strings.Contains(
		problem, "either count or for_each") {
		t.Error(problem)
	}
}

// The block of trajectories that a recipe gets without declaring one is set like those of the file; one that is not
// there is not named.
func TestTheImplicitBlockIsSet(t *testing.T) {
	t.Parallel()
	r, problem := setIn(t, "trajectories.builtin.default.limit=var.rank",
		"trajectories.builtin.default.health.failures=7")
	if problem != "" {
		t.Fatal(problem)
	}
	b := r.Lookup(address(t, "trajectories.builtin.default"))
	if got := b.Value.GetAttr("limit"); !got.RawEquals(cty.NumberIntVal(4)) || b.Meta.Health.Failures != 7 {
		t.Errorf("got %#v, %+v", got, b.Meta.Health)
	}
	for given, want := range map[string]string{
		"trajectories.builtin.defaul.limit=1":  `Did you mean "trajectories.builtin.default"?`,
		"trajectories.builtin.default.limt=1":  `Did you mean "limit"?`,
		"trajectories.builtin.default.count=2": "Several trajectories blocks",
		"trajectories.builtin.default=2":       "name an attribute of the block",
	} {
		if _, problem := setIn(t, given); !strings.Contains(problem, want) {
			t.Errorf("%s: got %q, want %q", given, problem, want)
		}
	}
	declared := settable + "trajectories \"builtin\" \"queue\" {}\n"
	_, diags := schema.LoadSource("x.hcl", []byte(declared), schema.Options{Plugins: fakePlugins(t),
		Set: []string{"trajectories.builtin.default.limit=1"}})
	if !diags.HasErrors() || strings.Contains(diags.Error(), "trajectories.builtin.default,") {
		t.Errorf("beside a declared block: %v", diags)
	}
}

func TestASecretThatIsSetIsNotShown(t *testing.T) {
	t.Parallel()
	r, problem := setIn(t, "inference.vllm.policy.token=geheim", "alert.fell.webhook=geheim",
		"inference.vllm.policy.dtype=x")
	if problem == "" || strings.Contains(problem, "geheim") {
		t.Errorf("the problem is %q", problem)
	}
	for _, f := range r.Files {
		if strings.Contains(string(f.Bytes), "geheim") {
			t.Error("a secret is kept to be shown")
		}
	}
	for _, s := range r.Settings {
		if strings.Contains(s.String(), "geheim") {
			t.Errorf("%s shows it", s)
		}
	}
}

func FuzzSet(f *testing.F) {
	for _, given := range []string{"trainer.grpo.policy.steps=1", "environment.atropos.e.config.a.b={",
		"alert.fell.x=${", "a.b"} {
		f.Add(given)
	}
	plugins := fakePlugins(f)
	f.Fuzz(func(_ *testing.T, given string) {
		_, _ = schema.LoadSource("x.hcl", []byte(settable), schema.Options{Plugins: plugins, Set: []string{given}})
	})
}
