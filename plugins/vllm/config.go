package vllm

import (
	"github.com/recipe-rl/recipe/sdk/kit/engine"
)

// Config is the body of `inference "vllm" "name"`. Attributes carry vLLM's own names, with underscores; what has no
// attribute goes through extra_args.
type Config struct {
	Model           string `recipe:"model" required:"true" change:"replace" model:"folder" doc:"Model to serve: a Hugging Face name, or a folder with config.json and safetensors. A relative path is resolved against the recipe's folder"`
	Revision        string `recipe:"revision" change:"replace" doc:"Branch, tag or commit of the model on the hub"`
	Tokenizer       string `recipe:"tokenizer" doc:"Tokenizer, if different from the model's"`
	ServedModelName string `recipe:"served_model_name" doc:"Name that clients send as model. Default: the model's name, or the last part of its path"`
	Dtype           string `recipe:"dtype" default:"auto" enum:"auto,half,float16,bfloat16,float,float32" doc:"Precision of weights and activations. float32 is the fastest on a CPU without AVX-512"`
	Quantization    string `recipe:"quantization" doc:"Quantization method. With fp8 (one scale for each layer), fp8_per_channel (one for each output) and fp8_per_block vLLM makes float8 of the weights that it loads, and of those of each update. Others (awq, gptq, bitsandbytes, …) are for checkpoints quantized before: weights reach such a server by restart only"`
	LoadFormat      string `recipe:"load_format" doc:"How weights are read: auto, safetensors, dummy, …"`
	TrustRemoteCode bool   `recipe:"trust_remote_code" doc:"Run Python code shipped with the model"`
	HFOverrides     any    `recipe:"hf_overrides" doc:"Object that replaces values of the model's config.json"`

	MaxModelLen          int64   `recipe:"max_model_len" min:"1" unit:"tokens" doc:"Prompt and completion together. Default: the model's maximum, whose KV cache can need more memory than is available"`
	MaxNumSeqs           int64   `recipe:"max_num_seqs" min:"1" unit:"sequences" doc:"Largest number of sequences decoded at once"`
	MaxNumBatchedTokens  int64   `recipe:"max_num_batched_tokens" min:"1" unit:"tokens" doc:"Largest number of tokens of one step over all sequences"`
	GPUMemoryUtilization float64 `recipe:"gpu_memory_utilization" min:"0.01" max:"1" doc:"Share of the GPU's memory that vLLM may take, weights and KV cache together. Default: vLLM's, about 0.9; with a trainer on the same GPU 0.3 to 0.5"`
	KVCacheDtype         string  `recipe:"kv_cache_dtype" doc:"Precision of the KV cache: auto, fp8, …"`
	KVCacheMemoryBytes   int64   `recipe:"kv_cache_memory_bytes" min:"1" unit:"bytes" doc:"Size of the KV cache on each GPU; overrides the size computed from gpu_memory_utilization"`
	CPUKVCacheSpace      int64   `recipe:"cpu_kvcache_space" min:"1" unit:"GiB" doc:"Size of the KV cache on a machine without a GPU (VLLM_CPU_KVCACHE_SPACE)"`
	EnablePrefixCaching  *bool   `recipe:"enable_prefix_caching" doc:"Keep the KV cache of common prompt beginnings; cleared at every weight update. Default: vLLM's, on"`
	EnforceEager         bool    `recipe:"enforce_eager" doc:"No compilation and no CUDA graphs: starts faster, decodes 2 to 3 times slower on a GPU"`

	Compile *bool `recipe:"compile" doc:"Let vLLM compile the model with torch.compile, on a GPU. Without, its CUDA graphs are recorded from the model's own kernels, and a start takes some 23 s less, or 5 s where compiled code is at hand. Default: no on one GPU for dense Llama, Mistral, Qwen2 and Qwen3 models in 16 bits or float8, without enable_lora: they decode as fast; else yes"`

	TensorParallelSize   int64 `recipe:"tensor_parallel_size" default:"1" min:"1" unit:"GPUs" doc:"GPUs that share each layer"`
	PipelineParallelSize int64 `recipe:"pipeline_parallel_size" default:"1" min:"1" unit:"GPUs" doc:"GPUs that hold consecutive layers"`
	DataParallelSize     int64 `recipe:"data_parallel_size" default:"1" min:"1" doc:"Copies of the model inside one server process. replicas, one server each behind the gateway, is the simpler way"`
	Replicas             int64 `recipe:"replicas" default:"1" min:"1" doc:"vLLM servers behind the gateway, each with its own GPUs. With placement { nodes = … } so many on each machine"`
	APIServerCount       int64 `recipe:"api_server_count" min:"1" doc:"Front-end processes of one server; more raise throughput when log-probabilities are asked for. Default: on a GPU one for every four cores that recipe may use, divided by replicas, at most four; one with enable_lora, which allows no more"`
	StreamInterval       int64 `recipe:"stream_interval" default:"8" min:"1" unit:"tokens" doc:"Tokens per event of a stream, and of one request in a message from the engine to a front end. Requests that continue during a weight update are answered as a stream, whose events cost a front-end process more than their tokens; up to this many tokens are recorded with the previous policy version"`

	PeerDevices []string `recipe:"peer_devices" doc:"Further GPUs of this machine that a server may see without using them: those of a trainer whose weights it copies directly (transport live or ipc)"`

	EnableLora  bool  `recipe:"enable_lora" doc:"Serve LoRA adapters; needed for transport lora. Decoding through an adapter is several times slower than through merged weights"`
	MaxLoraRank int64 `recipe:"max_lora_rank" default:"16" min:"1" doc:"Largest rank of an adapter"`
	MaxLoras    int64 `recipe:"max_loras" min:"1" doc:"Adapters in one step"`

	ChatTemplate         string `recipe:"chat_template" file:"content" doc:"File with a Jinja chat template, or the template itself"`
	ChatTemplateName     string `recipe:"chat_template_name" doc:"Which template to take from a tokenizer that has several (a dict or list, as Hermes models have). Default: default"`
	EnableAutoToolChoice *bool  `recipe:"enable_auto_tool_choice" doc:"Let the model choose tools. Default: on with a tool_call_parser"`
	ToolCallParser       string `recipe:"tool_call_parser" default:"auto" doc:"Parser of tool calls in the text: hermes, llama3_json, mistral, qwen3_coder, … auto: the one for the chat template, where it is known; none: requests with tools are refused"`
	ReasoningParser      string `recipe:"reasoning_parser" doc:"Parser that separates reasoning from the answer: deepseek_r1, qwen3, …. Without, the reasoning is a part of the answer's text, as a reward sees it; auto: the one for the chat template"`
	GenerationConfig     string `recipe:"generation_config" default:"vllm" doc:"Source of the sampling defaults. vllm: neutral ones; auto: the model's generation_config.json, which changes between a model and its checkpoints and so would change sampling at a restart"`
	LogprobsMode         string `recipe:"logprobs_mode" default:"processed_logprobs" enum:"raw_logprobs,processed_logprobs" doc:"Which log-probabilities are returned. processed: of the distribution that was sampled from, temperature included, which an importance ratio needs; raw: before temperature (vLLM's own default)"`
	MaxLogprobs          *int64 `recipe:"max_logprobs" min:"-1" doc:"Most log-probabilities per token that a client may ask for; -1: no limit"`
	Seed                 *int64 `recipe:"seed" min:"0" doc:"Seed of the sampler"`
	EnableSleepMode      bool   `recipe:"enable_sleep_mode" doc:"Let the server release its GPU memory while the trainer works on the same GPU"`

	ExtraArgs []string `recipe:"extra_args" doc:"Further arguments of vllm serve, passed unchanged"`

	engine.LimitSettings
}

// servedName is the name that clients send as model.
func (c Config) servedName() string { return engine.ServedName(c.ServedModelName, c.Model) }

// baseSuffix distinguishes the bare model from the adapter that answers for the policy, where LoRA is on.
const baseSuffix = "-base"

// baseName is what the model without an adapter is called on the server.
func (c Config) baseName() string {
	if c.EnableLora {
		return c.servedName() + baseSuffix
	}
	return c.servedName()
}
