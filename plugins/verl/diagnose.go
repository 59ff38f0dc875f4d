package verl

import (
	"regexp"

	"github.com/recipe-rl/recipe/sdk/kit/worker"
)

// symptoms are failures that this block has settings against. verl warns of every engine whose packages are missing,
// so only a package that ended the program counts.
func symptoms() []worker.Symptom {
	const missing = `ModuleNotFoundError: No module named '`
	return []worker.Symptom{
		{
			Pattern: regexp.MustCompile(`Unknown backend: megatron|` + missing + `(megatron|mbridge|transformer_engine)\b`),
			Summary: "verl's Megatron engine needs packages that this Python lacks",
			Remedy: "install megatron-core, mbridge and transformer-engine as described in verl's documentation, and name the " +
				"interpreter: runtime { python = … }; or use backend = \"fsdp2\"",
		},
		{
			Pattern: regexp.MustCompile(worker.TargetModules), Summary: "the model has no layer that adapters were to go into",
			Remedy:   `correct the names, or write "all-linear"`,
			Settings: []string{"config.model.target_modules", "config.actor_rollout_ref.model.target_modules"},
		},
		{
			Pattern: regexp.MustCompile(missing + `(verl|ray|torch|transformers|tensordict|hydra|omegaconf|PIL)\b`),
			Summary: "the Python of this block lacks a package that verl needs",
			Remedy: "run recipe init, which makes an environment for blocks without a runtime; or install verl==" +
				newestVersion + " and pillow into runtime.python",
			Settings: []string{worker.Interpreter},
		},
		{
			Pattern: regexp.MustCompile(worker.MachineMemory), Summary: "the machine ran out of memory",
			Remedy: "set config = { model = { lora_rank = 16 } }, lower actor.ppo_max_token_len_per_gpu, or use a smaller model",
		},
		{
			Pattern: regexp.MustCompile(worker.GPUMemory), Summary: "the GPU ran out of memory",
			Remedy: "lower actor.ppo_max_token_len_per_gpu in config by half; then actor.fsdp_config.param_offload and " +
				"optimizer_offload, model.lora_rank = 16, or more GPUs: placement { gpus = 2 }",
		},
	}
}
