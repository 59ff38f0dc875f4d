package verl

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/worker"
	"github.com/recipe-rl/recipe/sdk/kit/worker/workertest"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// python is an interpreter with verl.
func python(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../.cache/venv-verl/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skip("no .cache/venv-verl; scripts/venv.sh verl makes it")
	}
	return path
}

// A plan shows what is wrong with settings in verl's names at their place, without a GPU and before anything starts.
func TestAPlanChecksVerlsSettings(t *testing.T) {
	t.Parallel()
	c := Config{Common: worker.Common{Model: "org/model", MaxLength: 64}, Backend: "fsdp2", Config: map[string]any{
		"actor":   map[string]any{"optim": map[string]any{"lr": 1e-5, "lrr": 1}},
		"rollout": map[string]any{"temperature": 0.7},
	}}
	_, problems := (&Trainer{}).Plan(c, sdk.Placement{Python: python(t)})
	found := map[string]string{}
	for _, p := range problems {
		found[spec.PathString(p.Path)] = p.Summary + " " + p.Detail
	}
	if len(found) != 2 || !strings.Contains(found["config.actor.optim.lrr"], "is lr meant?") ||
		!strings.Contains(found["config.rollout.temperature"], "the environment's sampling") {
		t.Errorf("problems %v", found)
	}
	e, problems := (&Trainer{}).Plan(c, sdk.Placement{})
	if len(problems) > 0 || !slices.ContainsFunc(e.Notes, func(n string) bool {
		return strings.Contains(n, "not checked yet")
	}) {
		t.Errorf("without an interpreter: problems %v, notes %q; want a note that nothing was checked", problems, e.Notes)
	}
}

// What stands in a recipe arrives as the program reads it: numbers, lists and nested objects of verl's.
func TestSettingsReachTheProgram(t *testing.T) {
	t.Parallel()
	c := decode(t, map[string]cty.Value{
		"model": cty.StringVal("org/model"), "steps": cty.NumberIntVal(7), "backend": cty.StringVal("fsdp"),
		"config": cty.ObjectVal(map[string]cty.Value{
			"actor": cty.ObjectVal(map[string]cty.Value{
				"optim": cty.ObjectVal(map[string]cty.Value{"lr": cty.NumberFloatVal(1e-5),
					"betas": cty.TupleVal([]cty.Value{cty.NumberFloatVal(0.9), cty.NumberFloatVal(0.95)})}),
				"ppo_mini_batch_size":  cty.NumberIntVal(4),
				"ppo_micro_batch_size": cty.NullVal(cty.DynamicPseudoType),
			}),
		}),
	})
	p, err := program(sdk.Request[Config]{Config: c})
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(p.Settings)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"backend":"fsdp"`, `"steps":7`, `"path":"org/model"`, `"lr":0.00001`,
		`"betas":[0.9,0.95]`, `"ppo_mini_batch_size":4`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%s is missing in %s", want, data)
		}
	}
}

func decode(t *testing.T, values map[string]cty.Value) (c Config) {
	t.Helper()
	schema := Plugin().Schema
	v, err := schema.Conform(cty.ObjectVal(values))
	if err != nil {
		t.Fatal(err)
	}
	if err := spec.Decode(schema.ApplyDefaults(v), schema, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWhatCorrectsStaleTokensIsTold(t *testing.T) {
	t.Parallel()
	correction := func(settings map[string]any) Config {
		return Config{Config: map[string]any{"algorithm": map[string]any{"rollout_correction": settings}}}
	}
	for name, c := range map[string]struct {
		config Config
		want   string
	}{
		"default":  {Config{}, ""},
		"bypass":   {correction(map[string]any{"bypass_mode": true}), "bypass"},
		"weights":  {correction(map[string]any{"rollout_is": "token"}), "rollout_is = token"},
		"rejected": {correction(map[string]any{"rollout_rs": "token_k1"}), ""},
	} {
		if got := c.config.corrects(); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestMemoryIsWhatVerlKeeps(t *testing.T) {
	t.Parallel()
	parts := func(config map[string]any, gpus, machines int) map[string]float64 {
		c := Config{Common: worker.Common{Model: "Qwen/Qwen2.5-1.5B-Instruct", MaxLength: 64}, Config: config}
		e, problems := (&Trainer{}).Plan(c, sdk.Placement{GPUs: gpus, Nodes: machines})
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		out := map[string]float64{}
		for _, a := range e.Amounts {
			out[a.Part] = a.Value
		}
		return out
	}
	full := parts(nil, 1, 0)
	if full["weights"] < 6.1e9 || full["weights"] > 6.2e9 || full["optimizer"] != 2*full["weights"] ||
		full["gradients"] != full["weights"] {
		t.Errorf("all weights: %v; want 4, 4 and 8 bytes a parameter", full)
	}
	if two := parts(nil, 2, 0); two["optimizer"] != full["optimizer"]/2 || two["published"] != full["published"] {
		t.Errorf("two GPUs: %v; want half of the optimizer on each, and the whole model published", two)
	}
	if four := parts(nil, 2, 2); four["optimizer"] != full["optimizer"]/4 {
		t.Errorf("two GPUs of two machines: %v; want a quarter of the optimizer on each", four)
	}
	model := map[string]any{"model": map[string]any{"lora_rank": int64(16)}}
	if lora := parts(model, 1, 0); lora["optimizer"] != 0 || lora["published"] != full["published"]/2 {
		t.Errorf("adapters: %v; want no optimizer of all weights, and bfloat16 published", lora)
	}
	offload := map[string]any{"actor": map[string]any{"fsdp_config": map[string]any{"optimizer_offload": true}}}
	if off := parts(offload, 1, 0); off["optimizer"] != 0 || off["weights"] != full["weights"] {
		t.Errorf("offloaded: %v; want the optimizer elsewhere", off)
	}
}

func TestSequencesThatFitIntoNoMicroBatchAreWarnedOf(t *testing.T) {
	t.Parallel()
	actor := func(settings map[string]any) map[string]any { return map[string]any{"actor": settings} }
	for name, c := range map[string]struct {
		length int64
		config map[string]any
		want   string
	}{
		"as long as the default": {16384, nil, ""},
		"longer":                 {32768, nil, "ppo_max_token_len_per_gpu = 32768"},
		"with more room": {32768,
			map[string]any{"actor_rollout_ref": actor(map[string]any{"ppo_max_token_len_per_gpu": int64(32768)})}, ""},
		"less where there are no gradients": {32768, actor(map[string]any{"ppo_max_token_len_per_gpu": int64(32768),
			"ppo_infer_max_token_len_per_gpu": int64(1024)}), "at most 1024 tokens"},
		"spread over ranks": {32768,
			actor(map[string]any{"fsdp_config": map[string]any{"ulysses_sequence_parallel_size": int64(2)}}), ""},
		"counted in sequences": {32768, actor(map[string]any{"ppo_micro_batch_size_per_gpu": int64(1)}), ""},
		"counted in tokens in spite of a size": {32768,
			actor(map[string]any{"ppo_micro_batch_size_per_gpu": int64(1), "use_dynamic_bsz": true}), "at most 16384"},
	} {
		common := worker.Common{MaxLength: c.length}
		problems := (&Trainer{}).Validate(Config{Common: common, Backend: "fsdp2", Config: c.config})
		path := "max_length"
		if c.want == "" {
			path = ""
		}
		workertest.Problem(t, name, problems, path, c.want)
	}
}

func TestMegatronIsWarnedOf(t *testing.T) {
	t.Parallel()
	problems := (&Trainer{}).Validate(Config{Common: worker.Common{MaxLength: 64}, Backend: "megatron"})
	if len(problems) != 1 || !problems[0].Warning {
		t.Errorf("%v; want a warning", problems)
	}
}

// The range of versions is in packages.go; the page and the test environment take it from there.
func TestSupportedVersionsAreStatedOnce(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"../../docs/verl.md":                oldestVersion + " to " + newestVersion,
		"../../scripts/python/verl.txt":     "verl==" + newestVersion,
		"../../docs/blocks/trainer.verl.md": oldestVersion + " to " + newestVersion,
	} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(data), want) {
			t.Errorf("%s does not say %q", file, want)
		}
	}
}

// The end of a log becomes a sentence about what is missing; verl's warnings of engines that nobody asked for do not.
func TestMissingPackagesAreNamed(t *testing.T) {
	t.Parallel()
	for log, want := range map[string]string{
		"  File \"run.py\"\nModuleNotFoundError: No module named 'tensordict'":   "lacks a package",
		"AssertionError: Unknown backend: megatron":                              "Megatron engine needs packages",
		`UserWarning: ModuleNotFoundError("No module named 'megatron'")`:         "",
		"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB": "GPU ran out of memory",
	} {
		found := ""
		for _, s := range symptoms() {
			if s.Pattern.MatchString(log) {
				found = s.Summary
				break
			}
		}
		if (want == "") != (found == "") || !strings.Contains(found, want) {
			t.Errorf("%q: %q, want %q", log, found, want)
		}
	}
}
