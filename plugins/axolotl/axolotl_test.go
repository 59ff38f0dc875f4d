package axolotl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"
	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/spec"
	"github.com/recipe-rl/recipe/sdk/trainer/worker"
	"github.com/recipe-rl/recipe/sdk/trainer/worker/workertest"
)

func TestMain(m *testing.M) {
	workertest.Main()
	goleak.VerifyTestMain(m)
}

// TestCompliance runs the checks that every trainer must pass, over a real gRPC connection.
func TestCompliance(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	config := func(*testing.T) any {
		api := plugintest.Ref("trajectories.builtin.default", kind.Trajectories,
			outputs.Trajectories{URL: "http://127.0.0.1:8000", Token: "token"})
		return cty.ObjectVal(map[string]cty.Value{"model": cty.StringVal("org/model"), "steps": cty.NumberIntVal(1000),
			"trajectories": api.Values})
	}
	plugintest.Compliance(t, Plugin(), plugintest.Suite{
		Config: config,
		Options: []plugintest.Option{func(r *pluginpb.StartRequest) {
			r.Runtime = &pluginpb.Runtime{Python: exe}
			r.Environment = workertest.Environment("patient")
		}},
		Bad: map[string]func(t *testing.T) any{
			"a data set": func(t *testing.T) any {
				values := config(t).(cty.Value).AsValueMap()
				values["config"] = cty.ObjectVal(map[string]cty.Value{"datasets": cty.TupleVal([]cty.Value{cty.StringVal("x")})})
				return cty.ObjectVal(values)
			},
		},
	})
}

func TestWhatRecipeDoesItselfIsRefusedByName(t *testing.T) {
	t.Parallel()
	common := worker.Common{Model: "m", BatchSize: 8, MaxLength: 64}
	for name, c := range map[string]struct {
		config     map[string]any
		path, part string
	}{
		"a data set": {map[string]any{"datasets": []any{}}, "config.datasets", "environment"},
		"a server":   {map[string]any{"trl": map[string]any{"vllm_mode": "server"}}, "config.trl.vllm_mode", "inference"},
		"a reward": {map[string]any{"trl": map[string]any{"reward_funcs": []any{"x"}}}, "config.trl.reward_funcs",
			"environment"},
		"what is TRL's":   {map[string]any{"trl": map[string]any{"loss_type": "dapo", "epsilon": 0.1}}, "", ""},
		"what is its own": {map[string]any{"adapter": "qlora", "load_in_4bit": true, "deepspeed": "zero3.json"}, "", ""},
	} {
		problems := (&Trainer{}).Validate(Config{Common: common, Config: c.config})
		if c.path == "" {
			if len(problems) > 0 {
				t.Errorf("%s: %v", name, problems)
			}
			continue
		}
		if len(problems) != 1 || spec.PathString(problems[0].Path) != c.path ||
			!strings.Contains(problems[0].Detail, c.part) {
			t.Errorf("%s: %+v; want one problem of %s that says %s", name, problems, c.path, c.part)
		}
	}
}

func TestThePlanSaysWhatAxolotlWillDo(t *testing.T) {
	t.Parallel()
	common := worker.Common{Model: "Qwen/Qwen2.5-1.5B-Instruct", BatchSize: 8, MaxLength: 64}
	plan := func(config map[string]any) sdk.Estimate {
		e, problems := (&Trainer{}).Plan(Config{Common: common, Config: config}, sdk.Placement{GPUs: 1})
		if len(problems) > 0 {
			t.Error(problems)
		}
		return e
	}
	if e := plan(nil); e.Facts["dtype"] != "bfloat16" || strings.Contains(e.Facts["transports"], "lora") {
		t.Errorf("nothing set: %v; want bfloat16, and no adapter to publish", e.Facts)
	}
	if e := plan(map[string]any{"adapter": "lora", "bf16": false}); e.Facts["dtype"] != "float32" ||
		!strings.Contains(e.Facts["transports"], "lora") {
		t.Errorf("adapters in float32: %v", e.Facts)
	}
	off := map[string]any{"trl": map[string]any{"vllm_importance_sampling_correction": false}}
	if got := plan(off).Facts["corrects"]; got != "" {
		t.Errorf("without the correction: %q", got)
	}
}

// TestTheSupportedVersionIsStatedOnce holds documentation and the test environment to the constant.
func TestTheSupportedVersionIsStatedOnce(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"docs/axolotl.md", "scripts/python/axolotl.txt"} {
		data, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(path)))
		if err != nil || !strings.Contains(string(data), version) {
			t.Errorf("%s does not say %s (%v)", path, version, err)
		}
	}
}
