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

	"github.com/recipe-rl/recipe/sdk/kit/engine"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// transports are the ways in which weights can reach this server.
func (c *client) transports(facts engine.Facts) []transport.Name {
	return slices.DeleteFunc(c.config.spec().TransportsWithin(facts.Reach), func(name transport.Name) bool {
		switch name {
		case transport.Restart:
			return false
		case transport.LoRA:
			return c.offers.lacks("/v1/load_lora_adapter")
		}
		return c.offers.lacks("/collective_rpc")
	})
}

// Load implements engine.Client.
func (c *client) Load(ctx context.Context, l engine.Load) (note string, err error) {
	return engine.Ways{Adapter: c.loadAdapter, Copy: c.pull, Folder: c.reload, Plain: c.plainAdapter}.Load(ctx, l)
}

// reload loads a checkpoint folder into the running server: pause, load, empty the caches, label, resume. What was
// paused is resumed in any case: a server left paused answers /health with 200 and nothing else.
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

	// also rebuilds the output head of a tied model
	if err := c.call(ctx, "recipe_reload", map[string]any{"weights_path": w.Path}, nil); err != nil {
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
// in front decides whether there are any, and continue with what has been computed of them: computing it again costs
// about a second, and the gateway records both versions.
func (c *client) pause(ctx context.Context, l engine.Load) (resume func() error, err error) {
	if l.Asleep || c.offers.lacks("/pause") { // nothing runs there, or the gateway's hold is all there is
		return func() error { return nil }, nil
	}
	resume = func() error {
		ctx, cancel := engine.CleanupContext(ctx)
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
	if err := c.call(ctx, "recipe_zero_adapter", map[string]any{"path": path}, nil); err != nil {
		return fmt.Errorf("make the first adapter: %w", err)
	}
	body := map[string]any{"lora_name": c.model, "lora_path": path, "load_inplace": true}
	if err := c.Post(ctx, "/v1/load_lora_adapter", body, nil); err != nil {
		return fmt.Errorf("load the first adapter: %w", err)
	}
	return nil
}
