package vllm

import (
	"regexp"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/engine"
)

// logFormat is how vLLM's log is read.
func logFormat() engine.LogFormat {
	return engine.LogFormat{
		Milestones: milestones(), Line: regexp.MustCompile(loggedLevel), Noise: regexp.MustCompile(noise),
		Levels: map[string]string{"WARNING": "warn", "ERROR": "error", "CRITICAL": "error"},
	}
}

// milestones are lines that vLLM writes when it has come to a stage.
func milestones() []engine.Milestone {
	return []engine.Milestone{
		{Pattern: regexp.MustCompile(`Loading safetensors checkpoint shards:\s+\d+% Completed \| (\d+)/(\d+)`),
			Phase: sdk.Loading, Message: "loading weights"},
		{Pattern: regexp.MustCompile(`Capturing CUDA graphs?[^:]*:\s+\d+%\|[^|]*\| (\d+)/(\d+)`), Phase: sdk.Loading,
			Message: "capturing CUDA graphs"},
		{Pattern: regexp.MustCompile(`Resolved architecture: (\S+)`), Phase: sdk.Starting, Message: "model is a $1"},
		{Pattern: regexp.MustCompile(`Initializing a V1 LLM engine`), Phase: sdk.Starting, Message: "starting the engine"},
		{Pattern: regexp.MustCompile(`Time spent downloading weights`), Phase: sdk.Loading, Message: "weights downloaded"},
		{Pattern: regexp.MustCompile(`Starting to load model`), Phase: sdk.Loading, Message: "loading weights"},
		{Pattern: regexp.MustCompile(`Loading weights took ([\d.]+) s`), Phase: sdk.Loading,
			Message: "weights loaded in $1 s"},
		{Pattern: regexp.MustCompile(`Dynamo bytecode transform|Compiling a graph|Start compiling|torch\.compile takes`),
			Phase: sdk.Loading, Message: "compiling the model"},
		{Pattern: regexp.MustCompile(`KV cache size: ([\d,]+) tokens`), Phase: sdk.Loading,
			Message: "KV cache holds $1 tokens"},
		{Pattern: regexp.MustCompile(`init engine .* took ([\d.]+) s`), Phase: sdk.Loading, Message: "engine ready after " +
			"$1 s, starting the front end"},
		{Pattern: regexp.MustCompile(`Application startup complete`), Phase: sdk.Loading,
			Message: "waiting for the first answer"},
	}
}

// loggedLevel finds the level of a line of vLLM's log, whose form is "(Process pid=1) LEVEL 11-21 05:37:06
// [file.py:1] text".
const loggedLevel = `^(?:\([^)]*\) )?(DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] (.*)$`

// noise are warnings that every start or reload prints and that ask for nothing (layers without weights of their own).
const noise = `Development endpoints are enabled|LoRA dynamic loading & unloading is enabled|` +
	`Found ulimit of|Enforce eager set|Inductor compilation was disabled|` +
	`libtcmalloc is not found|libiomp is not found|requires Triton|Triton is not installed|` +
	`(RotaryEmbedding|ParallelLMHead): Failed to load weights`
