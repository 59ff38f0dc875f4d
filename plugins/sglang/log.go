package sglang

import (
	"regexp"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/engine"
)

// logFormat is how SGLang's log is read. Its lines name no level, so lines that a person should see are recognized by
// their beginning.
func logFormat() engine.LogFormat {
	return engine.LogFormat{
		Milestones: milestones(), Line: regexp.MustCompile(loggedFailure), Levels: map[string]string{"": "error"},
	}
}

// milestones are lines that SGLang writes when it reaches a stage. Three processes import everything: the front end,
// the scheduler and the detokenizer.
func milestones() []engine.Milestone {
	return []engine.Milestone{
		{Pattern: regexp.MustCompile(`loading shards:\s+\d+% Completed \| (\d+)/(\d+)`), Phase: sdk.Loading,
			Message: "loading weights"},
		{Pattern: regexp.MustCompile(`Capturing batches.*\| (\d+)/(\d+) \[`), Phase: sdk.Loading,
			Message: "capturing CUDA graphs", Begins: "capturing CUDA graphs"},
		{Pattern: regexp.MustCompile(`server_args=(?:ServerArgs\(|\{)`), Phase: sdk.Starting, Message: "starting the schedulers",
			Begins: "importing for the schedulers"},
		{Pattern: regexp.MustCompile(`Load weight begin`), Phase: sdk.Loading, Message: "loading weights",
			Begins: "loading weights"},
		{Pattern: regexp.MustCompile(`Load weight end\. elapsed=([\d.]+) s`), Phase: sdk.Loading,
			Message: "weights loaded in $1 s", Begins: "warming up"},
		{Pattern: regexp.MustCompile(`KV Cache is allocated\..*#tokens: (\d+)`), Phase: sdk.Loading,
			Message: "KV cache holds $1 tokens"},
		{Pattern: regexp.MustCompile(`The server is fired up and ready to roll`), Phase: sdk.Loading,
			Message: "waiting for the first answer", Begins: "the first answer"},
	}
}

// loggedFailure matches a line about a failure; the form of lines is "[2026-11-22 02:53:27 TP0] text".
const loggedFailure = `^\[\d{4}-\d\d-\d\d [^\]]*\]() ((?:Scheduler hit an exception|Health check failed|Failed to|Error).*)$`
