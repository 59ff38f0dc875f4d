package trl

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"
	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/worker"
	"github.com/recipe-rl/recipe/sdk/kit/worker/workertest"
	"github.com/recipe-rl/recipe/sdk/spec"
)

func TestMain(m *testing.M) {
	workertest.Main()
	goleak.VerifyTestMain(m)
}

func TestCompliance(t *testing.T) {
	refused := cty.ObjectVal(map[string]cty.Value{"use_vllm": cty.True})
	workertest.Compliance(t, Plugin(), map[string]cty.Value{"config": refused})
}

func TestWhatRecipeDoesItselfIsRefusedByName(t *testing.T) {
	t.Parallel()
	common := worker.Common{Model: "m", BatchSize: 8, MaxLength: 64}
	for name, c := range map[string]struct {
		config map[string]any
		path   string
		part   string
	}{
		"a server":       {map[string]any{"vllm_mode": "server"}, "config.vllm_mode", "inference"},
		"a reward":       {map[string]any{"reward_funcs": []any{"x"}}, "config.reward_funcs", "environment"},
		"a misspelling":  {map[string]any{"lerning_rate": 1e-6}, "config.lerning_rate", "learning_rate"},
		"true as a word": {map[string]any{"use_peft": "true"}, "config.use_peft", "true or false"},
		"another loss":   {map[string]any{"loss_type": "dapoo"}, "config.loss_type", "vespo"},
		"no row at all": {map[string]any{"per_device_train_batch_size": int64(0)}, "config.per_device_train_batch_size",
			"1 or more"},
		"adapters that are not asked for": {map[string]any{"lora_r": int64(64)}, "config.lora_r", "use_peft = true"},
		"adapters twice": {map[string]any{"use_peft": true, "lora_r": int64(64), "peft_config": map[string]any{}},
			"config.lora_r", "peft_config"},
		"sharding that is off": {map[string]any{"fsdp_config": map[string]any{}}, "config.fsdp_config", "fsdp is set"},
		"of another loss":      {map[string]any{"sapo_temperature_pos": 1.0}, "config.sapo_temperature_pos", "sapo"},
		"a misspelling in a section that nothing complains of": {map[string]any{"fsdp": true, "fsdp_config": map[string]any{
			"versions": int64(2)}}, "config.fsdp_config.versions", "version"},
		"an object for a value": {map[string]any{"fsdp": true, "fsdp_config": map[string]any{
			"fsdp_version": map[string]any{}}}, "config.fsdp_config.fsdp_version", "a whole number"},
		"a policy that there is not": {map[string]any{"fsdp": true, "fsdp_config": map[string]any{
			"auto_wrap_policy": "ALWAYS"}}, "config.fsdp_config.auto_wrap_policy", "SIZE_BASED_WRAP"},
		"a kernel that there is not": {map[string]any{"use_liger_kernel": true, "liger_kernel_config": map[string]any{
			"rmsnorm": true}}, "config.liger_kernel_config.rmsnorm", "rms_norm"},
		"a setting of accelerate's that it refuses": {map[string]any{"accelerator_config": map[string]any{
			"split_batch": true}}, "config.accelerator_config.split_batch", "split_batches"},
		"no pairs": {map[string]any{"optim": "sgd", "optim_args": "momentum:0.9"}, "config.optim_args",
			`"momentum:0.9" is no name=value`},
		"arguments that no optimizer reads": {map[string]any{"optim_args": "momentum=0.9"}, "config.optim_args", "sgd"},
		"arguments of an optimizer": {map[string]any{"optim": "sgd", "optim_args": "momentum=0.9, nesterov=1"}, "",
			""},
		"sharding": {map[string]any{"fsdp": "full_shard", "fsdp_config": map[string]any{"version": "2",
			"fsdp_cpu_offload": "yes", "transformer_layer_cls_to_wrap": []any{"LlamaDecoderLayer"}}}, "", ""},
		"adapters":       {map[string]any{"use_peft": true, "lora_r": int64(64), "dtype": nil}, "", ""},
		"what is TRL's":  {map[string]any{"beta": 1e-6, "vllm_importance_sampling_mode": "token_mask"}, "", ""},
		"peft's options": {map[string]any{"peft_config": map[string]any{"r": int64(8)}}, "", ""},
	} {
		problems := (&Trainer{}).Validate(Config{Common: common, Config: c.config})
		workertest.Problem(t, name, problems, c.path, c.part)
	}
}

// The rules name settings that there are, or attributes of the block.
func TestRulesNameSettings(t *testing.T) {
	t.Parallel()
	if names := Managed().Strange("old_policy"); len(names) > 0 {
		t.Errorf("settings.json speaks of %q, which are no settings", names)
	}
	c := Config{Common: worker.Common{Model: "m", BatchSize: 8, MaxLength: 64}, OldPolicy: "rollout",
		Config: map[string]any{"vllm_importance_sampling_mode": "token_mask"}}
	workertest.Problem(t, "a correction that there is not", (&Trainer{}).Validate(c),
		"config.vllm_importance_sampling_mode", "against the sampler")
}

func TestThePlanSaysWhatTRLWillDo(t *testing.T) {
	t.Parallel()
	none := int64(0)
	common := worker.Common{Model: "Qwen/Qwen2.5-1.5B-Instruct", BatchSize: 8, MaxLength: 64}
	gpu := sdk.Placement{GPUs: 1}
	fact := func(c Config, name string) string {
		c.Common = common
		e, problems := (&Trainer{}).Plan(c, gpu)
		if len(problems) > 0 {
			t.Error(problems)
		}
		return e.Facts[name]
	}
	for name, c := range map[string]struct {
		config     Config
		fact, want string
	}{
		"default correction": {Config{}, "corrects", "sequence_mask"},
		"bypass":             {Config{OldPolicy: "rollout"}, "corrects", "against the sampler"},
		"precision":          {Config{Config: map[string]any{"dtype": "bfloat16"}}, "publish_dtype", "bfloat16"},
		"adapters":           {Config{Config: map[string]any{"use_peft": true}}, "transports", "lora"},
		"their rank":         {Config{Config: map[string]any{"use_peft": true, "lora_r": int64(32)}}, "lora_rank", "32"},
		"TRL's rank":         {Config{Config: map[string]any{"use_peft": true}}, "lora_rank", "16"},
		"peft's own rank": {Config{Config: map[string]any{"peft_config": map[string]any{"r": int64(64)}}}, "lora_rank",
			"64"},
		"loss": {Config{Config: map[string]any{"loss_type": "cispo"}}, "loss", "cispo"},
	} {
		if got := fact(c.config, c.fact); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s is %q, want %q in it", name, c.fact, got, c.want)
		}
	}
	off := Config{Config: map[string]any{"vllm_importance_sampling_correction": false}}
	if got := fact(off, "corrects"); got != "" {
		t.Errorf("without the correction: %q", got)
	}
	if got := (Config{Common: worker.Common{MaxStaleness: &none}}).corrects(); got != "" {
		t.Errorf("where nothing stale is trained: %q", got)
	}
	if strings.Contains(fact(Config{}, "transports"), "lora") {
		t.Error("all weights are trained: there is no adapter to publish")
	}
	e, _ := (&Trainer{}).Plan(Config{Common: common, Config: map[string]any{"load_in_8bit": true}}, gpu)
	if !strings.Contains(strings.Join(e.Notes, " "), "weights on disk") {
		t.Errorf("a quantized model: %q; want to hear of the first batches", e.Notes)
	}
	withAgent := common
	withAgent.Environments = []spec.Ref{{Address: "environment.reward.a"}, {Address: "environment.agent.b"}}
	e, _ = (&Trainer{}).Plan(Config{Common: withAgent}, gpu)
	if notes := strings.Join(e.Notes, " "); !strings.Contains(notes, "environment.agent.b: where a rollout has several") ||
		strings.Contains(notes, "environment.reward.a") {
		t.Errorf("an agent as environment: %q; want to hear that one sequence a rollout is trained", e.Notes)
	}
	sum := func(c Config) (total float64) {
		c.Common = common
		e, _ := (&Trainer{}).Plan(c, gpu)
		for _, a := range e.Amounts {
			if a.Resource == "gpu_memory" {
				total += a.Value
			}
		}
		return total
	}
	if full := sum(Config{}); full < 24e9 || full > 25.5e9 {
		t.Errorf("1.54 billion parameters, AdamW, float32: %.1f GB, want 24.7", full/1e9)
	}
	for name, sharded := range map[string]bool{"fsdp": true, "deepspeed": true, "fsdp_config": false, "beta": false} {
		c := Config{Config: map[string]any{name: map[string]any{"version": int64(2)}}}
		if c.sharded() != sharded {
			t.Errorf("%s alone: sharded is %t; transformers reads fsdp_config only beside fsdp", name, !sharded)
		}
	}
	if lora := sum(Config{Config: map[string]any{"use_peft": true, "dtype": "bfloat16"}}); lora > 6.5e9 {
		t.Errorf("adapters on bfloat16 and their merged copy: %.1f GB, want 6.2", lora/1e9)
	}
}

// TestSupportedVersionsAreStatedOnce holds documentation, the test environments and what recipe init installs to the
// constants.
func TestSupportedVersionsAreStatedOnce(t *testing.T) {
	t.Parallel()
	read := func(path string) string {
		data, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(path)))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if text := read("docs/trl.md"); !strings.Contains(text, oldestVersion+" to "+newestVersion) {
		t.Errorf("docs/trl.md does not say %s to %s", oldestVersion, newestVersion)
	}
	pinned := strings.Fields(read("scripts/python/trl.txt"))
	for _, requirement := range packages(false).Requirements {
		if !slices.Contains(pinned, requirement) {
			t.Errorf("scripts/python/trl.txt does not pin %s", requirement)
		}
	}
	if !strings.Contains(read("scripts/python/trl-oldest.txt"), "trl=="+oldestVersion) {
		t.Errorf("scripts/python/trl-oldest.txt does not pin trl==%s", oldestVersion)
	}
}
