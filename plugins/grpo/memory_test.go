package grpo

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/worker"
)

// TestThePlansMemoryIsThatOfRunsOnAGPU compares the plan's sum with the allocator peaks of the notebook in
// docs/benchmarks: Qwen2.5-1.5B's shape (vocabulary 151,936), 64 sequences of 1,024 tokens, on an H200.
func TestThePlansMemoryIsThatOfRunsOnAGPU(t *testing.T) {
	t.Parallel()
	on, off := true, false
	compute := func(dtype, arithmetic string, recompute bool, rows, chunk int64, compiled bool) *Compute {
		return &Compute{Dtype: dtype, ComputeDtype: arithmetic, GradientCheckpointing: &recompute, RowTokens: &rows,
			HeadChunk: &chunk, Compile: &compiled}
	}
	for name, c := range map[string]struct {
		compute *Compute
		lora    int64
		copied  bool    // inference copied the merged weights
		peak    float64 // GiB
	}{
		"full, bfloat16, 16k, 4,096":            {compute("bfloat16", "bfloat16", off, 16384, 4096, on), 0, false, 46.29},
		"full, bfloat16, 32k, 4,096":            {compute("bfloat16", "bfloat16", off, 32768, 4096, on), 0, false, 77.82},
		"full, bfloat16, recomputed, 8k":        {compute("bfloat16", "bfloat16", on, 8192, 1024, on), 0, false, 13.93},
		"full, bfloat16, recomputed, 16k":       {compute("bfloat16", "bfloat16", on, 16384, 1024, on), 0, false, 14.75},
		"full, float32, recomputed, 8k":         {compute("float32", "float32", on, 8192, 1024, off), 0, false, 32},
		"LoRA 64, bfloat16, 32k, 4,096":         {compute("bfloat16", "bfloat16", off, 32768, 4096, on), 64, false, 70.29},
		"LoRA 64, float32, recomputed, 8k":      {compute("float32", "float32", on, 8192, 1024, off), 64, false, 11},
		"LoRA 64, gsm8k.hcl's, with its copies": {compute("float32", "bfloat16", on, 8192, 1024, off), 64, true, 14.1},
	} {
		config := Config{Common: worker.Common{Model: "Qwen/Qwen2.5-1.5B-Instruct", BatchSize: 64, MaxLength: 1024,
			PublishDtype: "bfloat16"}, Compute: c.compute, KL: &KL{}}
		if c.lora > 0 {
			config.Lora = &Lora{Rank: c.lora}
		}
		e, problems := (&Trainer{}).Plan(config, sdk.Placement{GPUs: 1})
		for _, p := range problems {
			if !p.Warning {
				t.Fatalf("%s: %+v", name, p)
			}
		}
		sum := 0.0
		for _, a := range e.Amounts {
			if a.Resource == "gpu_memory" && (a.Part != published || c.copied) {
				sum += a.Value / gib
			}
		}
		if off := sum/c.peak - 1; off < -0.15 || off > 0.15 {
			t.Errorf("%s: the plan says %.1f GiB, %.1f were used: %+.0f %%\n%+v", name, sum, c.peak, 100*off, e.Amounts)
		}
	}
}

// TestThePlanKnowsWhatIsNotCompiled: layers that carry a state are compiled only if that is set, and keep more of a
// forward pass.
func TestThePlanKnowsWhatIsNotCompiled(t *testing.T) {
	t.Parallel()
	activations := func(layers string, compute *Compute) float64 {
		t.Helper()
		dir := t.TempDir()
		text := `{"num_hidden_layers": 4, "hidden_size": 1024, "num_attention_heads": 8, "intermediate_size": 4096,
			"vocab_size": 1000, "layer_types": ["full_attention", "` + layers + `"]}`
		if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		config := Config{Common: worker.Common{Model: dir, BatchSize: 64, MaxLength: 1024}, Compute: compute}
		e, _ := (&Trainer{}).Plan(config, sdk.Placement{GPUs: 1})
		for _, a := range e.Amounts {
			if a.Part == "activations" {
				return a.Value
			}
		}
		t.Fatalf("the plan has no activations: %+v", e)
		return 0
	}
	on := true
	compiled, plain := activations("sliding_attention", nil), activations("linear_attention", nil)
	if plain <= compiled {
		t.Errorf("%.0f bytes where nothing is compiled, %.0f where all is; want more", plain, compiled)
	}
	if asked := activations("linear_attention", &Compute{Compile: &on}); asked != compiled {
		t.Errorf("%.0f bytes with compile = true; want the %.0f of compiled layers", asked, compiled)
	}
}
