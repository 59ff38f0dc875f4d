package sglang

import (
	"github.com/recipe-rl/recipe/sdk/kit/engine"
)

// title is the engine's name for people.
const title = "SGLang"

// Config is the body of `inference "sglang" "name"`. Attributes carry SGLang's own names; what has no attribute goes
// through extra_args.
type Config struct {
	Model                 string `recipe:"model" required:"true" change:"replace" model:"folder" doc:"Model to serve (--model-path): a Hugging Face name, or a folder with config.json and safetensors. A relative path is resolved against the recipe's folder"`
	Revision              string `recipe:"revision" change:"replace" doc:"Branch, tag or commit of the model on the hub"`
	TokenizerPath         string `recipe:"tokenizer_path" doc:"Tokenizer, if different from the model's"`
	ServedModelName       string `recipe:"served_model_name" doc:"Name that clients send as model. Default: the model's name, or the last part of its path"`
	Device                string `recipe:"device" enum:"cuda,cpu" doc:"Where it computes. Default: cuda where there is a GPU; cpu computes in plain PyTorch"`
	Dtype                 string `recipe:"dtype" default:"auto" enum:"auto,half,float16,bfloat16,float,float32" doc:"Precision of weights and activations. float32 is the fastest on a CPU without AVX-512"`
	Quantization          string `recipe:"quantization" doc:"Quantization method (fp8, awq, gptq, …). Weights reach a quantized server by restart only"`
	LoadFormat            string `recipe:"load_format" doc:"How weights are read at the start: auto, safetensors, dummy, …"`
	TrustRemoteCode       bool   `recipe:"trust_remote_code" doc:"Run Python code shipped with the model"`
	JSONModelOverrideArgs any    `recipe:"json_model_override_args" doc:"Object that replaces values of the model's config.json"`

	ContextLength      int64   `recipe:"context_length" min:"1" unit:"tokens" doc:"Prompt and completion together. Default: the model's maximum"`
	MaxRunningRequests int64   `recipe:"max_running_requests" min:"1" unit:"sequences" doc:"Largest number of sequences decoded at once"`
	MaxTotalTokens     int64   `recipe:"max_total_tokens" min:"1" unit:"tokens" doc:"Size of the KV cache. Default: what mem_fraction_static leaves after the weights; 32768 on a CPU where neither is set"`
	ChunkedPrefillSize *int64  `recipe:"chunked_prefill_size" min:"-1" unit:"tokens" doc:"Largest part of a prompt computed in one step; -1: prompts are not split"`
	MemFractionStatic  float64 `recipe:"mem_fraction_static" min:"0.01" max:"1" doc:"Share of the GPU's memory for weights and KV cache. It does not include the activations of a step. Default: SGLang's, 0.7 to 0.9; with a trainer on the same GPU 0.25 to 0.45"`
	KVCacheDtype       string  `recipe:"kv_cache_dtype" doc:"Precision of the KV cache: auto, fp8_e5m2, fp8_e4m3, …"`
	DisableRadixCache  bool    `recipe:"disable_radix_cache" doc:"Disable the prefix cache"`
	AttentionBackend   string  `recipe:"attention_backend" doc:"Attention kernels: fa3, flashinfer, triton, torch_native, …. Default: SGLang's choice; torch_native on a CPU"`
	SamplingBackend    string  `recipe:"sampling_backend" doc:"Sampling kernels: flashinfer, pytorch. Default: SGLang's choice; pytorch on a CPU"`
	GrammarBackend     string  `recipe:"grammar_backend" doc:"Backend of structured output: xgrammar, llguidance, outlines, none. Default: SGLang's choice; none on a CPU"`
	DisableCudaGraph   bool    `recipe:"disable_cuda_graph" doc:"No CUDA graphs: starts faster, decodes several times slower"`
	StreamInterval     int64   `recipe:"stream_interval" min:"1" unit:"tokens" doc:"Tokens per event of a stream. Larger values cost less; when requests continue during an update, up to this many tokens are recorded with the previous policy version"`
	TpSize             int64   `recipe:"tp_size" default:"1" min:"1" unit:"GPUs" doc:"GPUs that share each layer"`
	PpSize             int64   `recipe:"pp_size" default:"1" min:"1" unit:"GPUs" doc:"GPUs that hold consecutive layers"`
	DpSize             int64   `recipe:"dp_size" default:"1" min:"1" doc:"Copies of the model inside one server process. replicas, one server each behind the gateway, is the simpler way"`
	Replicas           int64   `recipe:"replicas" default:"1" min:"1" doc:"SGLang servers behind the gateway, each with its own GPUs. With placement { nodes = … } so many on each machine"`

	PeerDevices []string `recipe:"peer_devices" doc:"Further GPUs of this machine that a server may see without using them: those of a trainer whose weights it copies directly (transport live or ipc)"`

	EnableLora        bool     `recipe:"enable_lora" doc:"Serve LoRA adapters; needed for transport lora"`
	MaxLoraRank       int64    `recipe:"max_lora_rank" default:"16" min:"1" doc:"Largest rank of an adapter"`
	LoraTargetModules []string `recipe:"lora_target_modules" doc:"Modules that adapters may change. Default: all"`
	LoraBackend       string   `recipe:"lora_backend" doc:"LoRA kernels: csgmv, triton, torch_native, …. Default: SGLang's choice; torch_native on a CPU"`

	ChatTemplate       string `recipe:"chat_template" file:"content" doc:"File with a Jinja chat template, or the template itself"`
	HFChatTemplateName string `recipe:"hf_chat_template_name" doc:"Which template to take from a tokenizer that has several (a dict or list, as Hermes models have). Default: default"`
	ToolCallParser     string `recipe:"tool_call_parser" default:"auto" doc:"Parser of tool calls in the text: qwen25, llama3, mistral, … auto: the one for the chat template, where it is known; none: requests with tools are refused"`
	ReasoningParser    string `recipe:"reasoning_parser" doc:"Parser that separates reasoning from the answer: deepseek-r1, qwen3, …. Without, the reasoning is a part of the answer's text, as a reward sees it; auto: the one for the chat template"`
	SamplingDefaults   string `recipe:"sampling_defaults" default:"openai" enum:"openai,model" doc:"Source of the sampling defaults. openai: neutral ones; model: the model's generation_config.json, which changes between a model and its checkpoints and so would change sampling at a restart"`
	RandomSeed         *int64 `recipe:"random_seed" min:"0" doc:"Seed of the sampler"`

	EnableMemorySaver      bool  `recipe:"enable_memory_saver" doc:"Let the server release its GPU memory while the trainer works on the same GPU"`
	EnableWeightsCPUBackup *bool `recipe:"enable_weights_cpu_backup" doc:"Keep the weights in the host's memory while the server sleeps, so that waking without new weights is fast. Default: on with enable_memory_saver. If off, sleep_level = 1 of the sync block is refused"`

	ExtraArgs []string `recipe:"extra_args" doc:"Further arguments of sglang.launch_server, passed unchanged"`

	engine.LimitSettings
}

// baseName is what the model without an adapter is called on the server.
func (c Config) baseName() string { return engine.ServedName(c.ServedModelName, c.Model) }

// adapter is the name of the adapter that answers for the policy, where LoRA is on.
const adapter = "policy"

// policyName is the name that clients send as model; SGLang reads NAME:ADAPTER.
func (c Config) policyName() string {
	if c.EnableLora {
		return c.baseName() + ":" + adapter
	}
	return c.baseName()
}

func (c Config) onCPU(gpu bool) bool { return c.Device == "cpu" || (c.Device == "" && !gpu) }

// backup reports whether weights survive in the host's memory while the server sleeps.
func (c Config) backup() bool {
	return c.EnableMemorySaver && (c.EnableWeightsCPUBackup == nil || *c.EnableWeightsCPUBackup)
}
