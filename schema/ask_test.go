package schema_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// asked are plugins that report the problems of a test.
type asked struct {
	fakes
	find func(k kind.Kind, config cty.Value) ([]spec.Problem, error)
}

func (a asked) Validate(k kind.Kind, _ string, config cty.Value) ([]spec.Problem, error) {
	return a.find(k, config)
}

var _ schema.Validator = asked{}

const validated = `
locals { rates = [1, 2] }
inference "vllm" "p" {
  model = "m"
  token = "hunter22"
}
environment "atropos" "e" {
  inference = inference.vllm.p
  config = {
    a = { b = [1, 2] }
  }
}
trainer "grpo" "p" {
  model        = inference.vllm.p.base_url
  environments = [environment.atropos.e]
  steps        = 5
  lora {
    rank = 3
  }
  reward {
    name = "first"
  }
  dynamic "reward" {
    for_each = local.rates
    content {
      name = "r${reward.value}"
    }
  }
}
`

// TestPluginsAreAsked: a problem that a plugin finds is shown at the part of the block that it is about.
func TestPluginsAreAsked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind kind.Kind
		path cty.Path
		at   string // the text of the range
	}{
		"an attribute": {kind.Trainer, cty.GetAttrPath("steps"), "5"},
		"a part of an attribute": {kind.Environment, cty.GetAttrPath("config").IndexString("a").IndexString(
			"b").IndexInt(1), "2"},
		"an attribute that is not set": {kind.Trainer, cty.GetAttrPath("batch_size"), `trainer "grpo" "p"`},
		"the block":                    {kind.Trainer, nil, `trainer "grpo" "p"`},
		"a nested block":               {kind.Trainer, cty.GetAttrPath("lora"), "lora"},
		"in a nested block":            {kind.Trainer, cty.GetAttrPath("lora").GetAttr("rank"), "3"},
		"not set in a nested block":    {kind.Trainer, cty.GetAttrPath("lora").GetAttr("alpha"), "lora"},
		"one of several blocks": {kind.Trainer, cty.GetAttrPath("reward").IndexInt(0).GetAttr("name"),
			`"first"`},
		"a dynamic block": {kind.Trainer, cty.GetAttrPath("reward").IndexInt(2).GetAttr("name"),
			`"r${reward.value}"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plugins := asked{fakePlugins(t), func(k kind.Kind, _ cty.Value) ([]spec.Problem, error) {
				if k != c.kind {
					return nil, nil
				}
				return []spec.Problem{{Path: c.path, Summary: "cannot be so", Detail: "Write another."},
					{Path: c.path, Warning: true, Summary: "steps are few"}}, nil
			}}
			r, diags := schema.LoadSource("x.hcl", []byte(validated), schema.Options{Plugins: plugins})
			if len(diags) != 2 || !diags.HasErrors() || diags[0].Summary != "Cannot be so" ||
				!strings.HasSuffix(diags[0].Detail, ": Write another.") {
				t.Fatalf("%v", diags)
			}
			if len(r.Warnings) != 1 || r.Warnings[0].Detail == "" {
				t.Errorf("warnings: %v", r.Warnings)
			}
			if got := string(diags[0].Subject.SliceBytes([]byte(validated))); got != c.at {
				t.Errorf("shown at %q, want %q", got, c.at)
			}
			if extra, ok := hcl.DiagnosticExtra[interface{ DiagnosticAddress() string }](diags[0]); !ok ||
				!strings.HasPrefix(extra.DiagnosticAddress(), string(c.kind)) {
				t.Errorf("no address: %v", extra)
			}
		})
	}
}

// A plugin gets unmarked values, with unknown ones where nothing is known yet, and is asked again when they are known.
func TestPluginsAreAskedAgainWithOutputs(t *testing.T) {
	t.Parallel()
	plugins := asked{fakePlugins(t), func(k kind.Kind, config cty.Value) ([]spec.Problem, error) {
		if config.ContainsMarked() {
			return nil, errors.New("marks were given")
		}
		if k == kind.Inference {
			return []spec.Problem{{Warning: true, Summary: "token", Detail: "got " +
				config.GetAttr("token").AsString()}}, nil
		}
		if k != kind.Trainer || !config.GetAttr("model").IsKnown() {
			return nil, nil
		}
		return []spec.Problem{{Path: cty.GetAttrPath("model"), Summary: "not that one"}}, nil
	}}
	synced := validated + "sync \"weights\" \"p\" {\n  trainer = trainer.grpo.p\n  inference = [inference.vllm.p]\n}\n"
	r, diags := schema.LoadSource("x.hcl", []byte(synced), schema.Options{Plugins: plugins})
	if diags.HasErrors() || len(diags) != 1 {
		t.Fatalf("while the model is not known: %v", diags)
	}
	if strings.Contains(diags[0].Detail, "hunter22") {
		t.Errorf("a plugin's words show a sensitive value: %s", diags[0].Detail)
	}
	outputs := map[addr.Block]cty.Value{address(t, "inference.vllm.p"): cty.ObjectVal(
		map[string]cty.Value{"base_url": cty.StringVal("http://127.0.0.1:1/v1")})}
	if _, _, diags := r.Evaluate(address(t, "trainer.grpo.p"), outputs); !diags.HasErrors() ||
		diags[0].Summary != "Not that one" {
		t.Errorf("when it is known: %v", diags)
	}
}

// The plugin of an external block is not asked.
func TestExternalBlocksAreNotValidated(t *testing.T) {
	t.Parallel()
	plugins := asked{fakePlugins(t), func(kind.Kind, cty.Value) ([]spec.Problem, error) {
		return nil, fmt.Errorf("asked")
	}}
	src := "inference \"vllm\" \"p\" {\n model = \"m\"\n external { endpoint = \"http://localhost:1\" }\n}\n"
	if _, diags := schema.LoadSource("x.hcl", []byte(src), schema.Options{Plugins: plugins}); diags.HasErrors() {
		t.Error(diags)
	}
}

// TestNumbersThatNoProgramHolds: numbers of a recipe have no bounds, those of programs have.
func TestNumbersThatNoProgramHolds(t *testing.T) {
	t.Parallel()
	type odd struct {
		Whole int64              `recipe:"whole"`
		Small int32              `recipe:"small"`
		Rate  float64            `recipe:"rate"`
		List  []int64            `recipe:"list"`
		Map   map[string]float64 `recipe:"map"`
		Free  any                `recipe:"free"`
		Frees map[string]any     `recipe:"frees"`
		Inner *struct {
			Whole int64 `recipe:"whole"`
		} `recipe:"inner,block"`
	}
	config, err := spec.Of(odd{})
	if err != nil {
		t.Fatal(err)
	}
	outputs, err := spec.Of(outputs.Inference{})
	if err != nil {
		t.Fatal(err)
	}
	plugins := fakes{kind.Inference: {"odd": {Kind: kind.Inference, Name: "odd", Config: config, Outputs: outputs}}}
	for _, c := range []struct {
		body string
		ok   bool
	}{
		{"whole = 9223372036854775807", true}, {"whole = 9223372036854775808", false},
		{"whole = -9223372036854775808", true}, {"whole = -9223372036854775809", false},
		{"whole = 1e30", false}, {`whole = "1e30"`, false}, {"whole = 1e99999999", false},
		{"whole = 1e300 * 1e300", false}, {"whole = local.big", false},
		{"small = 2147483647", true}, {"small = 2147483648", false}, {"rate = 1.7e308", true},
		{"rate = 1.8e308", false}, {"rate = 1e-300", true}, {"rate = 1e-330", false},
		{"rate = 0", true}, {"list = [1, 1e30]", false}, {"map = { a = 1e309 }", false},
		{"free = { a = [1e309] }", false}, {"frees = { a = { b = 1e309 } }", false}, {"free = { a = [1e300] }", true},
		{"inner { whole = 1e30 }", false}, {"placement { gpus = 1e30 }", false}, {"restart { attempts = 1e30 }", false},
		{`health { start_timeout = "1e30h" }`, false},
	} {
		src := "locals { big = 1e30 }\ninference \"odd\" \"p\" {\n  " + c.body + "\n}\n"
		_, diags := schema.LoadSource("x.hcl", []byte(src), schema.Options{Plugins: plugins})
		if diags.HasErrors() == c.ok {
			t.Errorf("%s: %v", c.body, diags)
		}
		if len(diags) > 0 && (diags[0].Subject == nil || diags[0].Subject.Start.Line < 3) {
			t.Errorf("%s: at %v", c.body, diags[0].Subject)
		}
	}
}
