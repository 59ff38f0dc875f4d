package vllm

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"

	"github.com/recipe-rl/recipe/sdk/engine"
)

// guardClass is the middleware that demands the key on every path; vLLM itself does so on a few.
const guardClass = "recipe_guard.Guard"

// Command implements engine.Program.
func (p *program) Command(l engine.Launch) (engine.Command, error) {
	args, err := p.arguments(l)
	if err != nil {
		return engine.Command{}, err
	}
	return engine.Command{Argv: append([]string{p.python}, args...), Env: p.environ(l)}, nil
}

// arguments is the command line after the interpreter: a pure function, so that it can be read and tested as a whole.
func (p *program) arguments(l engine.Launch) ([]string, error) {
	c := p.config
	// The module works where the vllm script does not: it needs no PATH and no metadata of a distribution called vllm.
	args := engine.Args{"-m", "vllm.entrypoints.cli.main", "serve", l.Model}
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
	if c.HFOverrides != nil {
		text, err := json.Marshal(c.HFOverrides)
		if err != nil {
			return nil, fmt.Errorf("write hf_overrides as JSON: %w", err)
		}
		args.Add("--hf-overrides", string(text))
	}

	args.Number("--max-model-len", c.MaxModelLen)
	args.Number("--max-num-seqs", c.MaxNumSeqs)
	args.Number("--max-num-batched-tokens", c.MaxNumBatchedTokens)
	if c.GPUMemoryUtilization > 0 {
		args.Add("--gpu-memory-utilization", strconv.FormatFloat(c.GPUMemoryUtilization, 'g', -1, 64))
	}
	args.Text("--kv-cache-dtype", c.KVCacheDtype)
	args.Number("--kv-cache-memory-bytes", c.KVCacheMemoryBytes)
	args.Toggle("--enable-prefix-caching", "--no-enable-prefix-caching", c.EnablePrefixCaching)
	args.Flag("--enforce-eager", c.EnforceEager)
	args.Above("--tensor-parallel-size", c.TensorParallelSize, 1)
	args.Above("--pipeline-parallel-size", c.PipelineParallelSize, 1)
	args.Above("--data-parallel-size", c.DataParallelSize, 1)
	args.Number("--api-server-count", c.APIServerCount)

	if c.EnableLora {
		args.Add("--enable-lora")
		args.Number("--max-lora-rank", c.MaxLoraRank)
		args.Number("--max-loras", c.MaxLoras)
	}

	args.Text("--chat-template", p.template)
	choice := c.ToolCallParser != ""
	if c.EnableAutoToolChoice != nil {
		choice = *c.EnableAutoToolChoice
	}
	args.Flag("--enable-auto-tool-choice", choice)
	args.Text("--tool-call-parser", c.ToolCallParser)
	args.Text("--reasoning-parser", c.ReasoningParser)
	args.Text("--generation-config", c.GenerationConfig)
	args.Text("--logprobs-mode", c.LogprobsMode)
	if c.MaxLogprobs != 0 {
		args.Add("--max-logprobs", strconv.FormatInt(c.MaxLogprobs, 10))
	}
	if c.Seed != nil {
		args.Add("--seed", strconv.FormatInt(*c.Seed, 10))
	}
	args.Flag("--enable-sleep-mode", c.EnableSleepMode)
	if p.extension != "" {
		args.Add("--worker-extension-cls", "recipe_vllm.RecipeWorker")
		args.Add("--middleware", guardClass)
	}
	return append(args, c.ExtraArgs...), nil
}

// environ is what the server's environment adds to that of the plugin's process. What the recipe sets wins, except
// for the settings that the plugin's own workings depend on.
func (p *program) environ(l engine.Launch) []string {
	env := map[string]string{
		"VLLM_NO_USAGE_STATS": "1",
		"DO_NOT_TRACK":        "1",
		"PYTHONUNBUFFERED":    "1", // phases are read from the log as they happen
	}
	if p.config.CPUKVCacheSpace > 0 {
		env["VLLM_CPU_KVCACHE_SPACE"] = strconv.FormatInt(p.config.CPUKVCacheSpace, 10)
	}
	maps.Copy(env, p.environment)
	// pause, resume, collective_rpc; on loopback, and behind the key because of guardClass
	env["VLLM_SERVER_DEV_MODE"] = "1"
	env["VLLM_USE_RUST_FRONTEND"] = "0" // it knows no middleware
	env["VLLM_API_KEY"] = l.Key         // not an argument: those are visible to every user of the machine
	if p.config.EnableLora {
		env["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"
	}
	if l.Devices != nil {
		env["CUDA_VISIBLE_DEVICES"] = strings.Join(l.Devices, ",")
	}
	if p.extension != "" {
		paths := []string{p.extension}
		if before := engine.LookupEnv(l.Environ, env, "PYTHONPATH"); before != "" {
			paths = append(paths, before)
		}
		env["PYTHONPATH"] = strings.Join(paths, string(os.PathListSeparator))
	}
	return engine.MergeEnv(l.Environ, env)
}
