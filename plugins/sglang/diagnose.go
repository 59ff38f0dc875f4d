package sglang

import (
	"regexp"

	"github.com/recipe-rl/recipe/sdk/kit/engine"
)

// diagnosis is how the end of an SGLang server is explained.
func diagnosis() engine.Diagnosis {
	return engine.Diagnosis{
		Title: title, Symptoms: engine.Symptoms(causes(), software(), died()), Ignore: regexp.MustCompile(harmless),
		Killed: "if it was not killed by hand, the machine ran out of memory (see dmesg): serve a smaller model, lower " +
			"max_total_tokens or max_running_requests, or use fewer replicas",
		Ended: "the lines above are the end of its log; extra_args and the versions in the block's runtime are what " +
			"differs most between machines",
	}
}

func software() engine.Software {
	return engine.Software{
		Title: title, Module: "sglang", Help: "python -m sglang.launch_server --help", OnCPU: "set device = \"cpu\"",
		LessMemory: "lower mem_fraction_static by 0.1: what a step needs besides weights and KV cache is not in it; then " +
			"chunked_prefill_size; disable_cuda_graph = true saves the memory of CUDA graphs",
	}
}

func causes() []engine.Symptom {
	return []engine.Symptom{
		{
			Name: "context", Pattern: regexp.MustCompile(`User-specified context_length \(\d+\) is greater than the derived context_length`),
			Summary: "context_length is longer than what the model was made for",
			Remedy: "lower context_length to the length that the message names, or extend the model on purpose with " +
				"json_model_override_args",
			Settings: []string{"context_length"},
		},
		{
			Name: "kv-cache", Pattern: regexp.MustCompile(`Not enough memory\. Please try to increase --mem-fraction-static|Loaded weights exceed`),
			Summary:  "mem_fraction_static leaves no memory for a KV cache after the weights",
			Remedy:   "raise mem_fraction_static, or use tp_size = 2; a trainer on the same GPU needs its own share",
			Settings: []string{"mem_fraction_static"},
		},
		{
			Name: "occupied", Pattern: regexp.MustCompile(`The memory capacity is unbalanced`),
			Summary: "another process holds part of the memory of some of the GPUs",
			Remedy:  "stop the other process (nvidia-smi shows it), or place the block on other GPUs",
			Passing: true,
		},
		{
			Name: "kernel", Pattern: regexp.MustCompile(`is a kernel for GPUs, and this machine has none`),
			Summary: "these settings need a kernel that exists for GPUs only",
			Remedy: "on a CPU leave attention_backend, sampling_backend and lora_backend out; quantization and mixtures of " +
				"experts need a GPU",
			Late:     true,
			Settings: []string{"attention_backend", "sampling_backend", "lora_backend", "quantization"},
		},
		{
			Name: "backend", Pattern: regexp.MustCompile(`Backend requires SM|backend is not supported on this|does not support attention_backend`),
			Summary:  "the attention backend does not run on this machine",
			Remedy:   "leave attention_backend out, or choose one for this GPU: triton runs on most; torch_native on a CPU",
			Settings: []string{"attention_backend"},
		},
		{
			Name: "tensor-parallel", Pattern: regexp.MustCompile(
				`is not divisible by \d+|must be divisible by (tp_size|tensor)`),
			Summary:  "the model's layers cannot be spread over tp_size GPUs evenly",
			Remedy:   "choose a tp_size that divides the number of attention heads",
			Settings: []string{"tp_size"},
		},
		{
			Name: "compiler", Pattern: regexp.MustCompile(`nvcc: (not found|command not found)|Could not find nvcc|ninja: (not found|command not found)|CUDA_HOME environment variable is not set`),
			Summary: "SGLang compiles some of its kernels at the first start, and finds no compiler",
			Remedy:  "install the CUDA toolkit (nvcc) and ninja, and set CUDA_HOME",
		},
	}
}

func died() engine.Symptom {
	return engine.Symptom{
		Name: "scheduler", Pattern: regexp.MustCompile( // a traceback says in its last line what it was
			`Scheduler hit an exception: Traceback.*\n(?:(?:[ \t].*)?\n)*(?P<detail>\S.*)|` +
				`Scheduler hit an exception|Received sigquit from a child process|Rank \d+ scheduler died`),
		Summary: "a scheduler process of SGLang died",
		Remedy:  "the block's log holds its own last words above this message",
		Passing: true, Late: true,
	}
}

// harmless are lines that many starts write and that explain nothing: models whose code some builds cannot import.
const harmless = `(?m)^.*(?:Ignore import error when loading|Fail to set RLIMIT_NOFILE).*$`
