// Package sglang serves a policy with SGLang on the engine kit (sdk/kit/engine), which supervises the servers. What is
// here knows SGLang: its arguments, its routes, its log, why it fails, and the function that its schedulers call to
// copy a trainer's weights.
//
// The address that clients get is that of the gateway which the SDK serves in front; SGLang itself listens on loopback
// only and demands a key on every path.
package sglang

import (
	"cmp"
	"embed"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/kit/engine"
)

// Plugin defines `inference "sglang"`.
func Plugin() *sdk.Definition {
	return inference.New("sglang", "Serves a model with SGLang",
		func() inference.Plugin[Config] { return newServer() },
		sdk.WithOutputs(engine.Outputs{}),
		sdk.WithKnownOutput("model", "served_model_name", "model"),
		sdk.WithPackages(packages),
		sdk.WithMetrics(),
		sdk.WithEnvironmentVariables("HF_*", "HUGGING_FACE_HUB_TOKEN", "SGLANG_*", "FLASHINFER_*", "TVM_FFI_*"),
		sdk.WithDoc("Starts SGLang, on GPUs or, in plain PyTorch, without, and keeps it at the current policy version. "+
			"Found through runtime { python = … } or requirements."))
}

// Server is one inference block served by SGLang.
type Server struct{ engine.Server[Config] }

var (
	_ sdk.Updater[Config]   = (*Server)(nil)
	_ sdk.Planner[Config]   = (*Server)(nil)
	_ sdk.Validator[Config] = (*Server)(nil)
)

func newServer() *Server {
	return &Server{engine.Server[Config]{
		Packages: packages, Extension: extension, Describe: Config.spec,
		Program: func(c Config, in engine.Installation) (engine.Program, error) {
			return &program{c, in, c.onCPU(in.GPU)}, nil
		},
	}}
}

// extension holds what servers import: their start behind a key, and the function that copies weights.
//
//go:embed extension/*.py extension/cpu/*.py
var extension embed.FS

func (c Config) spec() engine.Spec {
	return engine.Spec{
		Title: title, Slug: "sglang",
		Model: c.Model, Tokenizer: c.TokenizerPath, Served: c.policyName(), Published: cmp.Or(c.TokenizerPath, c.Model),
		ChatTemplate: engine.ChatTemplate{Text: c.ChatTemplate, Name: c.HFChatTemplateName,
			NameAttribute: "hf_chat_template_name"},
		Replicas: int(c.Replicas), Parallel: c.parallel(), PeerDevices: c.PeerDevices,
		SleepMode: c.EnableMemorySaver, SleepSetting: "enable_memory_saver", Lora: c.EnableLora, Quantization: c.Quantization,
		CacheSalt: true, CachedPrompt: c.cachedPrompt,
		ToolCallParser: c.ToolCallParser, ToolParsers: toolParsers,
		Limits: c.Limits(), Log: logFormat(), Diagnosis: diagnosis(),
	}
}

// parallel is how one server divides the model.
func (c Config) parallel() engine.Parallel {
	return engine.Parallel{
		Tensor:   engine.Factor{Attribute: "tp_size", Value: c.TpSize},
		Pipeline: engine.Factor{Attribute: "pp_size", Value: c.PpSize},
		Data:     engine.Factor{Attribute: "dp_size", Value: c.DpSize},
	}
}

// cachedPrompt is the length from which prompts are cached: longer than the pages of 64 tokens that some attention
// backends use. Others cache each token by itself.
func (c Config) cachedPrompt(facts engine.Facts) int {
	const longer = 65
	if c.DisableRadixCache || facts.MaxModelLen <= longer+1 { // one more is generated
		return 0
	}
	return longer
}
