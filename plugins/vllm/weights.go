package vllm

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/engine"
)

// transports are the ways that the settings allow.
func (c Config) transports() []string {
	var list []string
	if c.Quantization == "" && c.PipelineParallelSize <= 1 && c.DataParallelSize <= 1 {
		list = append(list, "live", "ipc", "nccl")
	}
	if c.EnableLora {
		list = append(list, "lora")
	}
	if c.Quantization == "" {
		list = append(list, "reload")
	}
	return append(list, "restart")
}

// withheld says why tensors cannot reach the servers without files; empty: they can.
func (c Config) withheld() string {
	switch {
	case c.Quantization != "":
		return fmt.Sprintf("quantization = %q: its parameters are not those that are trained", c.Quantization)
	case c.PipelineParallelSize > 1:
		return "pipeline_parallel_size > 1: no worker has all layers"
	case c.DataParallelSize > 1:
		return "data_parallel_size > 1; replicas = … are updated one by one"
	}
	return ""
}

// transports are the ways in which weights can reach this server.
func (c *client) transports(facts engine.Facts) []string {
	var list []string
	for _, name := range c.config.transports() {
		switch {
		case (name == "live" || name == "ipc" || name == "nccl") && len(facts.Reach) == 0:
		case name == "lora" && c.offers.lacks("/v1/load_lora_adapter"):
		case name != "restart" && name != "lora" && c.offers.lacks("/collective_rpc"):
		default:
			list = append(list, name)
		}
	}
	return list
}

// inMemory are the transports that copy a trainer's tensors.
func inMemory(transport string) bool {
	return slices.Contains([]string{"live", "ipc", "nccl"}, transport)
}

// byFiles says that weights are a whole checkpoint to load.
func byFiles(w sdk.Weights) bool {
	return w.Transport == "reload" || w.Transport == "" || w.Format == "hf"
}

// Accepts implements engine.Program.
func (p *program) Accepts(w sdk.Weights) error {
	c := p.config
	switch {
	case w.Format == "lora" && !c.EnableLora:
		return &sdk.Error{
			Summary: "the trainer published a LoRA adapter, but this server was started without LoRA", Detail: w.Path,
			Remedy: "set enable_lora = true (and max_lora_rank) in the inference block, or transport = " +
				"\"reload\" in the sync block",
		}
	case w.Format == "lora", inMemory(w.Transport):
		return nil
	case byFiles(w) && c.Quantization != "":
		return &sdk.Error{Summary: "weights cannot be reloaded into a quantized server", Detail: "quantization = " +
			c.Quantization,
			Remedy: "set transport = \"restart\" in the sync block, or serve without quantization"}
	case byFiles(w):
		return nil
	}
	return &sdk.Error{Summary: fmt.Sprintf("this plugin cannot take weights by transport %q", w.Transport),
		Detail: "its settings allow " + strings.Join(c.transports(), ", "),
		Remedy: "set transport to one of these in the sync block, or leave it at auto"}
}

// Load implements engine.Client.
func (c *client) Load(ctx context.Context, l engine.Load) (note string, err error) {
	switch {
	case l.Weights.Format == "lora":
		return "", c.loadAdapter(ctx, l)
	case inMemory(l.Weights.Transport):
		copied, err := c.pull(ctx, l)
		if err != nil {
			return "", err
		}
		return copied.String(), c.plainAdapter(ctx)
	}
	if err := c.reload(ctx, l); err != nil {
		return "", err
	}
	return "", c.plainAdapter(ctx)
}

// resumeTimeout bounds the attempt to resume a server after an update that failed.
const resumeTimeout = 30 * time.Second

// reload loads a checkpoint folder into the running server: pause, load, empty the caches, label, resume. What was
// paused is resumed whatever happens: a server left paused answers /health with 200 and nothing else.
func (c *client) reload(ctx context.Context, l engine.Load) (err error) {
	w := l.Weights
	if err := c.offers.require("/collective_rpc", "load weights into a running server"); err != nil {
		return err
	}
	// Before anything is touched: vLLM notices a bad folder when the old weights are gone, and dies at the next request.
	if err := engine.CheckCheckpoint(w.Path); err != nil {
		return err
	}
	resume, err := c.pause(ctx, l)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resume()) }()

	method := "recipe_reload" // also rebuilds the output head of a tied model
	if !c.extension {
		method = "reload_weights"
	}
	if _, err := c.call(ctx, method, map[string]any{"weights_path": w.Path}); err != nil {
		return fmt.Errorf("load %s: %w", w.Path, err)
	}
	if err := c.forget(ctx); err != nil {
		return err
	}
	return c.label(ctx, w.Version)
}

// loadAdapter replaces the LoRA adapter that answers for the policy.
func (c *client) loadAdapter(ctx context.Context, l engine.Load) (err error) {
	w := l.Weights
	if err := c.offers.require("/v1/load_lora_adapter", "load an adapter (does the block set "+
		"enable_lora = true?)"); err != nil {
		return err
	}
	if err := engine.CheckAdapter(w.Path); err != nil {
		return err
	}
	resume, err := c.pause(ctx, l)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resume()) }()
	body := map[string]any{"lora_name": c.model, "lora_path": w.Path, "load_inplace": true}
	if err := c.Post(ctx, "/v1/load_lora_adapter", body, nil); err != nil {
		return fmt.Errorf("load the adapter %s: %w", w.Path, err)
	}
	if err := c.forget(ctx); err != nil {
		return err
	}
	return c.label(ctx, w.Version)
}

// pause stops generation between two steps and returns what resumes it. Requests in flight are kept, the gateway
// in front decides whether there are any, and go on with what has been computed of them: to compute it anew costs
// about a second, and the gateway records both versions.
func (c *client) pause(ctx context.Context, l engine.Load) (resume func() error, err error) {
	if l.Asleep || c.offers.lacks("/pause") { // nothing runs there, or the gateway's hold is all there is
		return func() error { return nil }, nil
	}
	resume = func() error {
		// Not the caller's context: the way back must be taken when that has ended, too.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resumeTimeout)
		defer cancel()
		if err := c.Post(ctx, "/resume", nil, nil); err != nil {
			return fmt.Errorf("resume generation after an update: %w", err)
		}
		return nil
	}
	if err := c.Post(ctx, "/pause?"+url.Values{"mode": {"keep"}, "clear_cache": {"false"}}.Encode(), nil,
		nil); err != nil {
		return nil, errors.Join(fmt.Errorf("pause generation for an update: %w", err), resume())
	}
	return resume, nil
}

// label sets the version of the server's weights. It is a name, not evidence; the sync block verifies the weights.
func (c *client) label(ctx context.Context, version int64) error {
	if c.offers.lacks("/update_weight_version") {
		return nil
	}
	if err := c.Post(ctx, "/update_weight_version", map[string]any{"new_version": strconv.FormatInt(version, 10)},
		nil); err != nil {
		return fmt.Errorf("label the weights as version %d: %w", version, err)
	}
	return nil
}

// plainAdapter has the server write an adapter that changes nothing and load it under the policy's name, so that
// clients can use one name from the first request on: vLLM refuses an adapter that is called like the base model.
func (c *client) plainAdapter(ctx context.Context) error {
	if !c.config.EnableLora {
		return nil
	}
	if err := os.MkdirAll(c.Address.Dir, 0o700); err != nil {
		return fmt.Errorf("make a folder for the first adapter: %w", err)
	}
	path := filepath.Join(c.Address.Dir, "adapter-zero")
	if _, err := c.call(ctx, "recipe_zero_adapter", map[string]any{"path": path}); err != nil {
		return fmt.Errorf("make the first adapter: %w", err)
	}
	body := map[string]any{"lora_name": c.model, "lora_path": path, "load_inplace": true}
	if err := c.Post(ctx, "/v1/load_lora_adapter", body, nil); err != nil {
		return fmt.Errorf("load the first adapter: %w", err)
	}
	return nil
}
