package vllm

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/recipe-rl/recipe/sdk/kit/engine"
)

// guardClass is the middleware that demands the key on every path; vLLM itself does so on a few.
const guardClass = "recipe_guard.Guard"

// keyVariable tells that middleware the key.
const keyVariable = "RECIPE_VLLM_KEY"

// graphsVariable leaves the choice whether the model is compiled to recipe_graphs.py, which knows the model;
// compilerVariable is vLLM's own.
const graphsVariable, compilerVariable = "RECIPE_VLLM_GRAPHS", "VLLM_USE_BREAKABLE_CUDAGRAPH"

// program implements engine.Program: how vLLM is started.
type program struct {
	config Config
	in     engine.Installation
	machine
}

// Connect implements engine.Program.
func (p *program) Connect(a engine.Address) engine.Client {
	c := newClient(a, p.config)
	c.tools, c.reasoning = p.parsers()
	return c
}

// parsers are vLLM's names of the parsers of tool calls and of reasoning; empty: none.
func (p *program) parsers() (tools, reasoning string) {
	return engine.Parser(p.config.ToolCallParser, p.in.Formats.Tools, toolParsers),
		engine.Parser(p.config.ReasoningParser, p.in.Formats.Reasoning, reasoningParsers)
}

// Command implements engine.Program.
func (p *program) Command(l engine.Launch) (engine.Command, error) {
	args, err := p.arguments(l)
	return engine.Command{Argv: append([]string{p.in.Python}, args...), Env: p.environ(l)}, err
}

// arguments is the command line after the interpreter: a pure function, so that it can be read and tested as a whole.
func (p *program) arguments(l engine.Launch) ([]string, error) {
	c := p.config
	// A module works where the vllm script does not: it needs no PATH and no metadata of a distribution called vllm.
	args := engine.Args{"-m", "recipe_serve", "serve", l.Model}
	args.Add("--host", "127.0.0.1")
	args.Add("--port", strconv.Itoa(l.Port))
	args.Add("--served-model-name", c.baseName())
	args.Add("--disable-uvicorn-access-log") // one line a request would be most of the log
	args.Text("--revision", c.Revision)
	args.Text("--tokenizer", l.Tokenizer)
	args.Text("--dtype", c.Dtype)
	args.Text("--quantization", c.Quantization)
	args.Text("--load-format", c.LoadFormat)
	args.Flag("--trust-remote-code", c.TrustRemoteCode)
	if err := args.JSON("--hf-overrides", c.HFOverrides); err != nil {
		return nil, err
	}

	args.Number("--max-model-len", c.MaxModelLen)
	args.Number("--max-num-seqs", c.MaxNumSeqs)
	args.Number("--max-num-batched-tokens", c.MaxNumBatchedTokens)
	args.Float("--gpu-memory-utilization", c.GPUMemoryUtilization)
	args.Text("--kv-cache-dtype", c.KVCacheDtype)
	args.Number("--kv-cache-memory-bytes", c.KVCacheMemoryBytes)
	args.Toggle("--enable-prefix-caching", "--no-enable-prefix-caching", c.EnablePrefixCaching)
	args.Flag("--enforce-eager", c.EnforceEager)
	args.Above("--tensor-parallel-size", c.TensorParallelSize, 1)
	args.Above("--pipeline-parallel-size", c.PipelineParallelSize, 1)
	args.Above("--data-parallel-size", c.DataParallelSize, 1)
	args.Number("--api-server-count", cmp.Or(c.APIServerCount, c.frontEnds(len(l.Devices), p.cores)))
	args.Number("--stream-interval", c.StreamInterval)
	if c.workerApart(len(l.Devices), p.machine) {
		args.Add(executorArgument, "mp")
	}

	if c.EnableLora {
		args.Add("--enable-lora")
		args.Number("--max-lora-rank", c.MaxLoraRank)
		args.Number("--max-loras", c.MaxLoras)
	}

	args.Text("--chat-template", p.in.ChatTemplate)
	tools, reasoning := p.parsers()
	choice := tools != ""
	if c.EnableAutoToolChoice != nil {
		choice = *c.EnableAutoToolChoice
	}
	args.Flag("--enable-auto-tool-choice", choice)
	args.Text("--tool-call-parser", tools)
	args.Text("--reasoning-parser", reasoning)
	args.Text("--generation-config", c.GenerationConfig)
	args.Text("--logprobs-mode", c.LogprobsMode)
	args.Integer("--max-logprobs", c.MaxLogprobs)
	args.Integer("--seed", c.Seed)
	args.Flag("--enable-sleep-mode", c.EnableSleepMode)
	args.Add("--worker-extension-cls", "recipe_vllm.RecipeWorker")
	args.Add("--middleware", guardClass)
	return append(args, c.ExtraArgs...), nil
}

// environ is the server's environment. What the recipe sets wins, except for settings that the plugin itself depends
// on.
func (p *program) environ(l engine.Launch) []string {
	defaults := map[string]string{"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
	maps.Copy(defaults, p.in.Bytecode(l))
	if p.config.CPUKVCacheSpace > 0 {
		defaults["VLLM_CPU_KVCACHE_SPACE"] = strconv.FormatInt(p.config.CPUKVCacheSpace, 10)
	}
	if len(l.Devices) > 0 && p.config.parallel().GPUs() == 1 {
		// The processes of the engine and of its model come from the front end's, which has imported everything already (16
		// to 23 s on an H200's machine). vLLM starts a new interpreter all the same where CUDA has been initialized before.
		defaults["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"
	}
	switch compile := p.config.Compile; {
	case compile != nil && *compile:
		defaults[compilerVariable] = "0"
	case compile != nil:
		defaults[compilerVariable] = "1"
	case len(l.Devices) > 0 && p.config.mayBeUncompiled():
		defaults[graphsVariable] = "auto"
	}
	fixed := map[string]string{
		// pause, resume, collective_rpc; on loopback, and behind the key because of guardClass
		"VLLM_SERVER_DEV_MODE":   "1",
		"VLLM_USE_RUST_FRONTEND": "0",   // it knows no middleware
		keyVariable:              l.Key, // not an argument: those are visible to every user of the machine
		// What guardClass demands is not vLLM's own key: vLLM would keep that in its compile cache, and look for compiled
		// graphs under its hash, so that none would be found in the next run. Empty: none, also where the user has one.
		"VLLM_API_KEY": "",
	}
	if p.config.EnableLora {
		fixed["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"
	}
	return l.Environment(defaults, p.in.Environment, fixed, p.in.Extension)
}

// mayBeUncompiled reports whether nothing in the block asks for the compiler or needs it.
func (c Config) mayBeUncompiled() bool {
	given := slices.ContainsFunc(c.ExtraArgs, func(a string) bool {
		name, _, _ := strings.Cut(a, "=")
		return slices.ContainsFunc(compilerArguments, func(p string) bool { return strings.HasPrefix(name, p) })
	})
	quantized := c.Quantization != "" && !c.requantizes()
	return !given && !c.EnforceEager && !c.EnableLora && !quantized && c.parallel().GPUs() == 1
}

// compilerArguments are how those of vLLM's arguments begin that decide how a model is compiled and recorded.
var compilerArguments = []string{"--compilation-config", "-cc", "-O", "--optimization-level", "--cudagraph",
	"--max-cudagraph", "--enforce-eager"}

// mostFrontEnds and coresPerFrontEnd: one process hands out at most 25,000 to 30,000 tokens a second with their
// log-probabilities, four 40,000 to 45,000 (measured with 512 sequences of a model of 1.5B on an H200).
const mostFrontEnds, coresPerFrontEnd = 4, 4

// frontEnds is the number of front-end processes where nothing says it; 0: vLLM's own choice, one. gpus: those that a
// server sees. Trainer and environments need cores, too.
func (c Config) frontEnds(gpus, cores int) int64 {
	given := slices.ContainsFunc(c.ExtraArgs, func(a string) bool { return strings.HasPrefix(a, "--api-server-count") })
	if gpus == 0 || given || c.EnableLora || c.DataParallelSize > 1 {
		return 0
	}
	n := min(mostFrontEnds, int64(cores)/(coresPerFrontEnd*max(1, c.Replicas)))
	if n < 2 {
		return 0
	}
	return n
}

// executorArgument names which process runs the model. A process of its own keeps a second core busy for one GPU and
// has two queues in shared memory, of 160 and 240 MiB; where they find no room, vLLM ends with a bus error.
// coresForWorker and sharedForWorker (bytes) are what each server must have for it.
const executorArgument, coresForWorker, sharedForWorker = "--distributed-executor-backend", 8, 512 << 20

// workerApart says whether the model of a server with one GPU runs in a process of its own where nothing says it, as
// vLLM has it for several GPUs. Else one Python process schedules requests and launches kernels, and the GPU waits for
// it: on an H100 with a model of 1.5B a token of 88 sequences took 4.2 to 6.6 ms, and takes 3.7. gpus: those that a
// server sees.
func (c Config) workerApart(gpus int, m machine) bool {
	given := slices.ContainsFunc(c.ExtraArgs, func(a string) bool { return strings.HasPrefix(a, executorArgument) })
	servers := max(1, c.Replicas)
	enough := int64(m.cores) >= coresForWorker*servers && m.shared >= uint64(sharedForWorker*servers)
	return gpus > 0 && c.parallel().GPUs() == 1 && !given && enough
}
