package sglang

import (
	"path/filepath"
	"strconv"

	"github.com/recipe-rl/recipe/sdk/kit/engine"
)

// program implements engine.Program: how SGLang is started.
type program struct {
	config Config
	in     engine.Installation
	cpu    bool // there is no GPU to compute on
}

// Connect implements engine.Program.
func (p *program) Connect(a engine.Address) engine.Client {
	c := newClient(a, p.config)
	c.tools, c.reasoning = p.parsers()
	return c
}

// parsers are SGLang's names of the parsers of tool calls and of reasoning; empty: none.
func (p *program) parsers() (tools, reasoning string) {
	return engine.Parser(p.config.ToolCallParser, p.in.Formats.Tools, toolParsers),
		engine.Parser(p.config.ReasoningParser, p.in.Formats.Reasoning, reasoningParsers)
}

// Command implements engine.Program.
func (p *program) Command(l engine.Launch) (engine.Command, error) {
	args, err := p.arguments(l)
	return engine.Command{Argv: append([]string{p.in.Python}, args...), Env: p.environ(l)}, err
}

// loader is the function that schedulers call by the route for tensors; see extension/recipe_sglang.py.
const loader = "recipe_sglang.call"

// cpuTokens bounds the KV cache on a CPU, where SGLang would take most of the machine's memory.
const cpuTokens = 32768

// arguments is the command line after the interpreter: a pure function, so that it can be read and tested as a whole.
func (p *program) arguments(l engine.Launch) ([]string, error) {
	c := p.withDefaults()
	// recipe_serve puts the key before every route and then starts sglang.launch_server with the rest.
	args := engine.Args{"-m", "recipe_serve", "--model-path", l.Model}
	args.Add("--host", "127.0.0.1")
	args.Add("--port", strconv.Itoa(l.Port))
	args.Add("--served-model-name", c.baseName())
	args.Add("--skip-server-warmup") // it sends no key; the kit asks for a first token anyway
	args.Add("--enable-metrics")     // the count of tokens distinguishes a long generation from an engine that hangs
	args.Add("--log-level-http", "warning")
	args.Add("--custom-weight-loader", loader)
	args.Text("--device", c.Device)
	args.Text("--revision", c.Revision)
	args.Text("--tokenizer-path", l.Tokenizer)
	args.Text("--dtype", c.Dtype)
	args.Text("--quantization", c.Quantization)
	args.Text("--load-format", c.LoadFormat)
	args.Flag("--trust-remote-code", c.TrustRemoteCode)
	if err := args.JSON("--json-model-override-args", c.JSONModelOverrideArgs); err != nil {
		return nil, err
	}

	args.Number("--context-length", c.ContextLength)
	args.Number("--max-running-requests", c.MaxRunningRequests)
	args.Number("--max-total-tokens", c.MaxTotalTokens)
	args.Integer("--chunked-prefill-size", c.ChunkedPrefillSize)
	args.Float("--mem-fraction-static", c.MemFractionStatic)
	args.Text("--kv-cache-dtype", c.KVCacheDtype)
	args.Flag("--disable-radix-cache", c.DisableRadixCache)
	args.Text("--attention-backend", c.AttentionBackend)
	args.Text("--sampling-backend", c.SamplingBackend)
	args.Text("--grammar-backend", c.GrammarBackend)
	args.Flag("--disable-cuda-graph", c.DisableCudaGraph)
	args.Flag("--disable-overlap-schedule", p.cpu)
	args.Number("--stream-interval", c.StreamInterval)
	args.Above("--tp-size", c.TpSize, 1)
	args.Above("--pp-size", c.PpSize, 1)
	args.Above("--dp-size", c.DpSize, 1)

	if c.EnableLora {
		args.Add("--enable-lora")
		args.Number("--max-lora-rank", c.MaxLoraRank)
		args.Add("--lora-target-modules")
		args.Add(c.LoraTargetModules...)
		args.Text("--lora-backend", c.LoraBackend)
	}

	args.Text("--chat-template", p.in.ChatTemplate)
	tools, reasoning := p.parsers()
	args.Text("--tool-call-parser", tools)
	args.Text("--reasoning-parser", reasoning)
	args.Text("--sampling-defaults", c.SamplingDefaults)
	args.Integer("--random-seed", c.RandomSeed)
	args.Flag("--enable-memory-saver", c.EnableMemorySaver)
	args.Flag("--enable-weights-cpu-backup", c.backup())
	return append(args, c.ExtraArgs...), nil
}

// withDefaults fills in what SGLang needs without a GPU, and what it would choose otherwise.
func (p *program) withDefaults() Config {
	c := p.config
	if len(c.LoraTargetModules) == 0 {
		c.LoraTargetModules = []string{"all"}
	}
	if !p.cpu {
		return c
	}
	c.Device, c.DisableCudaGraph = "cpu", true
	for field, value := range map[*string]string{
		&c.AttentionBackend: "torch_native", &c.SamplingBackend: "pytorch", &c.GrammarBackend: "none",
		&c.LoraBackend: "torch_native",
	} {
		if *field == "" {
			*field = value
		}
	}
	if c.MaxTotalTokens == 0 && c.MemFractionStatic == 0 {
		c.MaxTotalTokens = cpuTokens
	}
	return c
}

// environ is the server's environment. What the recipe sets wins, except for settings that the plugin itself depends
// on.
func (p *program) environ(l engine.Launch) []string {
	fixed := map[string]string{
		// /health would ask for a token, which a server that is paused or asleep cannot give. SGLang's own watchdog and
		// the count of tokens notice an engine that hangs.
		"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0",
		"RECIPE_SGLANG_KEY":                        l.Key, // not an argument: those are visible to every user of the machine
	}
	folders := []string{p.in.Extension}
	if p.cpu {
		fixed["SGLANG_USE_CPU_ENGINE"] = "1"
		folders = append(folders, filepath.Join(p.in.Extension, "cpu"))
	}
	return l.Environment(p.in.Bytecode(l), p.in.Environment, fixed, folders...)
}
