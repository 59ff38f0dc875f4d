package grpo

import (
	"regexp"

	"github.com/recipe-rl/recipe/sdk/kit/worker"
)

// symptoms are failures that this block has settings against.
func symptoms() []worker.Symptom {
	return []worker.Symptom{
		{
			Pattern: regexp.MustCompile(`No module named '?(torch|transformers|peft|safetensors|bitsandbytes|accelerate)\b`),
			Summary: "the Python of this block lacks a package that training needs",
			Remedy: "run recipe init, which makes an environment for blocks without a runtime; or install " +
				"torch and transformers " +
				"(peft for lora, bitsandbytes for adamw_8bit) into runtime.python",
			Settings: []string{worker.Interpreter},
		},
		{
			Pattern: regexp.MustCompile(worker.MachineMemory), Summary: "the machine ran out of memory",
			Remedy: "train with lora { rank = 16 }, lower compute { row_tokens }, or use a smaller model; " +
				"optimizer { offload = true } needs the memory that recipe plan names",
		},
		{
			Pattern: regexp.MustCompile(worker.GPUMemory), Summary: "the GPU ran out of memory",
			Remedy: "lower compute { row_tokens } by half; then lora { rank = 16 }; or for all weights optimizer { offload = " +
				"true }, which keeps AdamW's state in the host's memory, or name = \"adamw_8bit\" in it; or spread it over more " +
				"GPUs with placement { gpus = 2 }",
		},
	}
}
