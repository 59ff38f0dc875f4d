package vllm

import (
	"regexp"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/engine"
)

// logFormat is how vLLM's log is read.
func logFormat() engine.LogFormat {
	return engine.LogFormat{
		Milestones: milestones(), Line: regexp.MustCompile(loggedLevel), Noise: regexp.MustCompile(noise),
		Levels: map[string]string{"WARNING": "warn", "ERROR": "error", "CRITICAL": "error"},
	}
}

// milestones are lines that vLLM writes when it reaches a stage. The server imports everything once for the front
// end and once more for the engine, and asks a third process about the model when it sees it for the first time.
func milestones() []engine.Milestone {
	return []engine.Milestone{
		{Pattern: regexp.MustCompile(`Loading safetensors checkpoint shards:\s+\d+% Completed \| (\d+)/(\d+)`),
			Phase: sdk.Loading, Message: "loading weights"},
		{Pattern: regexp.MustCompile(`Capturing CUDA graphs?[^:]*:\s+\d+%\|[^|]*\| (\d+)/(\d+)`), Phase: sdk.Loading,
			Message: "capturing CUDA graphs", Begins: "capturing CUDA graphs"},
		{Pattern: regexp.MustCompile(`Resolved architecture: (\S+)`), Phase: sdk.Starting, Message: "model is a $1",
			Begins: "importing for the engine"},
		{Pattern: regexp.MustCompile(`Initializing a V1 LLM engine`), Phase: sdk.Starting, Message: "starting the engine",
			Begins: "starting the engine"},
		{Pattern: regexp.MustCompile(`Time spent downloading weights`), Phase: sdk.Loading, Message: "weights downloaded"},
		{Pattern: regexp.MustCompile(`Starting to load model|Loading model from scratch`), Phase: sdk.Loading, Message: "loading weights",
			Begins: "loading weights"},
		{Pattern: regexp.MustCompile(`Loading weights took ([\d.]+) s`), Phase: sdk.Loading,
			Message: "weights loaded in $1 s", Begins: "measuring memory"},
		{Pattern: regexp.MustCompile(`Using cache directory: .* for vLLM's torch\.compile|Start compiling|` +
			`Dynamo bytecode transform|Compiling a graph`),
			Phase: sdk.Loading, Message: "compiling the model", Begins: "compiling"},
		{Pattern: regexp.MustCompile(`torch\.compile (?:and initial profiling/warmup run together )?(?:takes|took) ([\d.]+) s`),
			Phase: sdk.Loading, Message: "compiled in $1 s", Begins: "measuring memory"},
		{Pattern: regexp.MustCompile(`KV cache size: ([\d,]+) tokens`), Phase: sdk.Loading,
			Message: "KV cache holds $1 tokens", Begins: "warming up", Takes: true},
		{Pattern: regexp.MustCompile(`Graph capturing finished`), Phase: sdk.Loading, Message: "CUDA graphs captured",
			Begins: "warming up kernels"},
		{Pattern: regexp.MustCompile(`init engine .* took ([\d.]+) s`), Phase: sdk.Loading, Message: "engine ready after " +
			"$1 s, starting the front end", Begins: "starting the front end"},
		{Pattern: regexp.MustCompile(`Application startup complete`), Phase: sdk.Loading,
			Message: "waiting for the first answer", Begins: "the first answer"},
	}
}

// loggedLevel finds the level of a line of vLLM's log, whose form is "(Process pid=1) LEVEL 11-21 05:37:06
// [file.py:1] text".
const loggedLevel = `^(?:\([^)]*\) )?(DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] (.*)$`

// noise are warnings that every start or reload prints and that need no action (layers without weights of their own).
const noise = `Development endpoints are enabled|LoRA dynamic loading & unloading is enabled|` +
	`Found ulimit of|Enforce eager set|Inductor compilation was disabled|` +
	`libtcmalloc is not found|libiomp is not found|requires Triton|Triton is not installed|` +
	`VLLM_USE_BREAKABLE_CUDAGRAPH is set|Triton kernel JIT compilation during inference|` +
	`(RotaryEmbedding|ParallelLMHead): Failed to load weights`
