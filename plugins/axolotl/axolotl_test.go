package axolotl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"
	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/trainer/worker"
	"github.com/recipe-rl/recipe/sdk/trainer/worker/workertest"
)

func TestMain(m *testing.M) {
	workertest.Main()
	goleak.VerifyTestMain(m)
}

func TestCompliance(t *testing.T) {
	refused := cty.ObjectVal(map[string]cty.Value{"datasets": cty.TupleVal([]cty.Value{cty.StringVal("x")})})
	workertest.Compliance(t, Plugin(), map[string]cty.Value{"config": refused})
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
		workertest.Problem(t, name, problems, c.path, c.part)
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
	if e := plan(map[string]any{"adapter": "lora", "bf16": false, "lora_r": int64(32)}); e.Facts["dtype"] != "float32" ||
		!strings.Contains(e.Facts["transports"], "lora") || e.Facts["lora_rank"] != "32" {
		t.Errorf("adapters in float32: %v", e.Facts)
	}
	quantised := plan(map[string]any{"adapter": "qlora", "load_in_4bit": true}).Notes
	if plain := plan(nil).Notes; len(quantised) != len(plain)+1 || !strings.Contains(quantised[1], "weights on disk") {
		t.Errorf("quantised: %q, else %q; want to hear of the first batches", quantised, plain)
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
