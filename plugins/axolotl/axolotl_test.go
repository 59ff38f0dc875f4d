package axolotl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"
	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/worker"
	"github.com/recipe-rl/recipe/sdk/kit/worker/workertest"
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
		"a misspelling": {map[string]any{"lerning_rate": 1e-5}, "config.lerning_rate", "learning_rate"},
		"one of TRL's": {map[string]any{"trl": map[string]any{"loss_typ": "dapo"}},
			"config.trl.loss_typ", "trl.loss_type"},
		"a loss in the wrong place": {map[string]any{"loss_type": "dapo"}, "config.loss_type", "trl.loss_type"},
		"half a row": {map[string]any{"micro_batch_size": 2.5},
			"config.micro_batch_size", "whole number"},
		"adapters that are not asked for": {map[string]any{"lora_r": int64(8)}, "config.lora_r", "adapter"},
		"four bits that are not loaded": {map[string]any{"adapter": "lora", "load_in_4bit": true},
			"config.load_in_4bit", "qlora"},
		"a warmup that there is not": {map[string]any{"warmup_steps": int64(8)}, "config.warmup_steps", "constant"},
		"what a plugin brings":       {map[string]any{"plugins": []any{"my.Plugin"}, "my_setting": true}, "", ""},
		"what is TRL's": {map[string]any{"trl": map[string]any{"loss_type": "dapo", "epsilon": 0.1}},
			"", ""},
		"what is its own": {map[string]any{"adapter": "qlora", "load_in_4bit": true, "deepspeed": "zero3.json"},
			"", ""},
	} {
		problems := (&Trainer{}).Validate(Config{Common: common, Config: c.config})
		workertest.Problem(t, name, problems, c.path, c.part)
	}
}

// The rules name settings that there are, or attributes of the block.
func TestRulesNameSettings(t *testing.T) {
	t.Parallel()
	if names := worker.ReadManaged(source, "recipe_axolotl/settings.json").Strange("old_policy"); len(names) > 0 {
		t.Errorf("settings.json speaks of %q, which are no settings", names)
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
	quantized := plan(map[string]any{"adapter": "qlora", "load_in_4bit": true}).Notes
	if plain := plan(nil).Notes; len(quantized) != len(plain)+1 || !strings.Contains(quantized[1], "weights on disk") {
		t.Errorf("quantized: %q, else %q; want to hear of the first batches", quantized, plain)
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
