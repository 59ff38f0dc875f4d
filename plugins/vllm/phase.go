package vllm

import (
	"strconv"
	"strings"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/lazyregexp"
)

// stage is how far a starting server has come, as a line of its log tells.
type stage struct {
	phase       sdk.Phase
	message     string
	done, total int64 // of what message names; total 0: no count
}

// milestone is a line that vLLM writes when it has come to a stage.
type milestone struct {
	pattern *lazyregexp.Regexp
	phase   sdk.Phase
	message string // $1 … are what the pattern has caught
}

var milestones = []milestone{
	{lazyregexp.New(`Loading safetensors checkpoint shards:\s+\d+% Completed \| (\d+)/(\d+)`), sdk.Loading, "loading weights"},
	{lazyregexp.New(`Capturing CUDA graphs?[^:]*:\s+\d+%\|[^|]*\| (\d+)/(\d+)`), sdk.Loading, "capturing CUDA graphs"},
	{lazyregexp.New(`Resolved architecture: (\S+)`), sdk.Starting, "model is a $1"},
	{lazyregexp.New(`Initializing a V1 LLM engine`), sdk.Starting, "starting the engine"},
	{lazyregexp.New(`Time spent downloading weights`), sdk.Loading, "weights downloaded"},
	{lazyregexp.New(`Starting to load model`), sdk.Loading, "loading weights"},
	{lazyregexp.New(`Loading weights took ([\d.]+) s`), sdk.Loading, "weights loaded in $1 s"},
	{lazyregexp.New(`Dynamo bytecode transform|Compiling a graph|Start compiling|torch\.compile takes`), sdk.Loading, "compiling the model"},
	{lazyregexp.New(`KV cache size: ([\d,]+) tokens`), sdk.Loading, "KV cache holds $1 tokens"},
	{lazyregexp.New(`init engine .* took ([\d.]+) s`), sdk.Loading, "engine ready after $1 s, starting the front end"},
	{lazyregexp.New(`Application startup complete`), sdk.Loading, "waiting for the first answer"},
}

// stageOf reads a line of vLLM's log; false when it tells nothing about the start.
func stageOf(line string) (stage, bool) {
	for _, m := range milestones {
		at := m.pattern.FindStringSubmatchIndex(line)
		if at == nil {
			continue
		}
		s := stage{phase: m.phase, message: string(m.pattern.ExpandString(nil, m.message, line, at))}
		if len(at) == 6 { // two numbers: how many of how many
			done, err1 := strconv.ParseInt(line[at[2]:at[3]], 10, 64)
			total, err2 := strconv.ParseInt(line[at[4]:at[5]], 10, 64)
			if err1 == nil && err2 == nil {
				s.done, s.total = done, total
			}
		}
		return s, true
	}
	return stage{}, false
}

// loggedLevel finds the level of a line of vLLM's log, whose form is "(Process pid=1) LEVEL 11-21 05:37:06 [file.py:1] text".
var loggedLevel = lazyregexp.New(`^(?:\([^)]*\) )?(DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] (.*)$`)

// noise are warnings that every start or reload prints and that ask for nothing (layers without weights of their own).
var noise = lazyregexp.New(`Development endpoints are enabled|LoRA dynamic loading & unloading is enabled|Found ulimit of|Enforce eager set|Inductor compilation was disabled|libtcmalloc is not found|libiomp is not found|requires Triton|Triton is not installed|(RotaryEmbedding|ParallelLMHead): Failed to load weights`)

// worthTelling returns the level and text of a line that a person should see in the run's events; everything else stays in the
// block's log file.
func worthTelling(line string) (level, text string, ok bool) {
	m := loggedLevel.FindStringSubmatch(line)
	if m == nil || noise.MatchString(line) || strings.HasPrefix(m[2], "  ") || strings.HasPrefix(m[2], "Traceback (") {
		return "", "", false // of a traceback its last line is told
	}
	switch m[1] {
	case "WARNING":
		level = "warn"
	case "ERROR", "CRITICAL":
		level = "error"
	default:
		return "", "", false
	}
	return level, strings.TrimSpace(m[2]), true
}
