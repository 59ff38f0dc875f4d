package vllm

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// launch is everything that decides how one vLLM server is started.
type launch struct {
	Config       Config
	Model        string            // what to load: Config.Model with its path resolved, or the weights of the current policy
	Tokenizer    string            // empty: the model's own
	ChatTemplate string            // file; empty: the model's own
	Port         int               // on loopback
	Devices      []string          // GPUs of this server; nil: leave the choice to vLLM
	Extension    string            // folder with recipe_vllm.py and recipe_guard.py; empty: without them
	APIKey       string            // demanded by the server
	Environment  map[string]string // of the block
}

// guardClass is the middleware that demands the key on every path; vLLM itself does so on a few.
const guardClass = "recipe_guard.Guard"

// arguments is the command line after the interpreter: a pure function, so that it can be read and tested as a whole.
func (l launch) arguments() ([]string, error) {
	c := l.Config
	// The module works where the vllm script does not: it needs no PATH and no metadata of a distribution called vllm.
	args := argList{"-m", "vllm.entrypoints.cli.main", "serve", l.Model}
	args.add("--host", "127.0.0.1")
	args.add("--port", strconv.Itoa(l.Port))
	args.add("--served-model-name", c.baseName())
	args.add("--disable-uvicorn-access-log") // one line a request would be most of the log
	args.text("--revision", c.Revision)
	args.text("--tokenizer", l.Tokenizer)
	args.text("--dtype", c.Dtype)
	args.text("--quantization", c.Quantization)
	args.text("--load-format", c.LoadFormat)
	args.flag("--trust-remote-code", c.TrustRemoteCode)
	if c.HFOverrides != nil {
		text, err := json.Marshal(c.HFOverrides)
		if err != nil {
			return nil, fmt.Errorf("write hf_overrides as JSON: %w", err)
		}
		args.add("--hf-overrides", string(text))
	}

	args.number("--max-model-len", c.MaxModelLen)
	args.number("--max-num-seqs", c.MaxNumSeqs)
	args.number("--max-num-batched-tokens", c.MaxNumBatchedTokens)
	if c.GPUMemoryUtilization > 0 {
		args.add("--gpu-memory-utilization", strconv.FormatFloat(c.GPUMemoryUtilization, 'g', -1, 64))
	}
	args.text("--kv-cache-dtype", c.KVCacheDtype)
	args.number("--kv-cache-memory-bytes", c.KVCacheMemoryBytes)
	args.toggle("--enable-prefix-caching", "--no-enable-prefix-caching", c.EnablePrefixCaching)
	args.flag("--enforce-eager", c.EnforceEager)
	args.above("--tensor-parallel-size", c.TensorParallelSize, 1)
	args.above("--pipeline-parallel-size", c.PipelineParallelSize, 1)
	args.above("--data-parallel-size", c.DataParallelSize, 1)
	args.number("--api-server-count", c.APIServerCount)

	if c.EnableLora {
		args.add("--enable-lora")
		args.number("--max-lora-rank", c.MaxLoraRank)
		args.number("--max-loras", c.MaxLoras)
	}

	args.text("--chat-template", l.ChatTemplate)
	choice := c.ToolCallParser != ""
	if c.EnableAutoToolChoice != nil {
		choice = *c.EnableAutoToolChoice
	}
	args.flag("--enable-auto-tool-choice", choice)
	args.text("--tool-call-parser", c.ToolCallParser)
	args.text("--reasoning-parser", c.ReasoningParser)
	args.text("--generation-config", c.GenerationConfig)
	args.text("--logprobs-mode", c.LogprobsMode)
	if c.MaxLogprobs != 0 {
		args.add("--max-logprobs", strconv.FormatInt(c.MaxLogprobs, 10))
	}
	if c.Seed != nil {
		args.add("--seed", strconv.FormatInt(*c.Seed, 10))
	}
	args.flag("--enable-sleep-mode", c.EnableSleepMode)
	if l.Extension != "" {
		args.add("--worker-extension-cls", "recipe_vllm.RecipeWorker")
		args.add("--middleware", guardClass)
	}
	return append(args, c.ExtraArgs...), nil
}

// environ is what the server's environment adds to that of the plugin's process. What the recipe sets wins, except for the
// settings that the plugin's own workings depend on.
func (l launch) environ(base []string) []string {
	env := map[string]string{
		"VLLM_NO_USAGE_STATS": "1",
		"DO_NOT_TRACK":        "1",
		"PYTHONUNBUFFERED":    "1", // phases are read from the log as they happen
	}
	if l.Config.CPUKVCacheSpace > 0 {
		env["VLLM_CPU_KVCACHE_SPACE"] = strconv.FormatInt(l.Config.CPUKVCacheSpace, 10)
	}
	maps.Copy(env, l.Environment)
	env["VLLM_SERVER_DEV_MODE"] = "1"   // pause, resume, collective_rpc; on loopback, and behind the key because of guardClass
	env["VLLM_USE_RUST_FRONTEND"] = "0" // it knows no middleware
	env["VLLM_API_KEY"] = l.APIKey      // not an argument: those are visible to every user of the machine
	if l.Config.EnableLora {
		env["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"
	}
	if l.Devices != nil {
		env["CUDA_VISIBLE_DEVICES"] = strings.Join(l.Devices, ",")
	}
	if l.Extension != "" {
		paths := []string{l.Extension}
		if before := lookup(base, env, "PYTHONPATH"); before != "" {
			paths = append(paths, before)
		}
		env["PYTHONPATH"] = strings.Join(paths, string(os.PathListSeparator))
	}
	return merge(base, env)
}

// lookup finds a variable in env, then in base.
func lookup(base []string, env map[string]string, name string) string {
	if v, ok := env[name]; ok {
		return v
	}
	for _, entry := range slices.Backward(base) {
		if v, ok := strings.CutPrefix(entry, name+"="); ok {
			return v
		}
	}
	return ""
}

// merge replaces in base the variables that env names, and sorts what it adds.
func merge(base []string, env map[string]string) []string {
	out := make([]string, 0, len(base)+len(env))
	for _, entry := range base {
		name, _, _ := strings.Cut(entry, "=")
		if _, replaced := env[name]; !replaced {
			out = append(out, entry)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out = append(out, name+"="+env[name])
	}
	return out
}

// argList collects arguments; each method leaves out what was not set.
type argList []string

func (a *argList) add(args ...string) { *a = append(*a, args...) }

func (a *argList) text(name, value string) {
	if value != "" {
		a.add(name, value)
	}
}

func (a *argList) number(name string, value int64) { a.above(name, value, 0) }

func (a *argList) above(name string, value, limit int64) {
	if value > limit {
		a.add(name, strconv.FormatInt(value, 10))
	}
}

func (a *argList) flag(name string, on bool) {
	if on {
		a.add(name)
	}
}

func (a *argList) toggle(on, off string, value *bool) {
	switch {
	case value == nil:
	case *value:
		a.add(on)
	default:
		a.add(off)
	}
}

// isPath tells a local folder from a hub name: "./model", "../m", "/models/m" and "~/m" are paths, "org/model" is a name.
func isPath(model string) bool {
	return strings.HasPrefix(model, ".") || strings.HasPrefix(model, "/") || strings.HasPrefix(model, "~")
}

// resolve makes a local model's path absolute; hub names stay.
func resolve(model, recipeDir string) string {
	switch {
	case !isPath(model):
		return model
	case strings.HasPrefix(model, "~/"):
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, model[2:])
		}
		return model
	case filepath.IsAbs(model):
		return filepath.Clean(model)
	default:
		return filepath.Join(recipeDir, model)
	}
}

func baseName(path string) string { return filepath.Base(filepath.Clean(path)) }
