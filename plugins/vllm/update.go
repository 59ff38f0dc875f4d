package vllm

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"time"

	"github.com/recipe-rl/recipe/sdk"
)

// resumeTimeout bounds the attempt to let a server go on after an update that failed.
const resumeTimeout = 30 * time.Second

// reload loads a checkpoint folder into the running server: pause, load, empty the caches, label, resume. What was paused is
// resumed whatever happens: a server left paused answers /health with 200 and nothing else.
func (c *client) reload(ctx context.Context, o offers, extension bool, w sdk.Weights) (err error) {
	if err := o.require("/collective_rpc", "load weights into a running server"); err != nil {
		return err
	}
	// Before anything is touched: vLLM notices a bad folder when the old weights are gone, and dies at the next request.
	if err := checkCheckpoint(w.Path); err != nil {
		return err
	}
	resume, err := c.pause(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resume()) }()

	method := "recipe_reload" // also makes the output head of a tied model anew
	if !extension {
		method = "reload_weights"
	}
	if _, err := c.call(ctx, method, map[string]any{"weights_path": w.Path}); err != nil {
		return fmt.Errorf("load %s: %w", w.Path, err)
	}
	if err := c.forget(ctx); err != nil {
		return err
	}
	return c.label(ctx, o, w.Version)
}

// loadAdapter replaces the LoRA adapter that answers for the policy.
func (c *client) loadAdapter(ctx context.Context, o offers, w sdk.Weights) (err error) {
	if err := o.require("/v1/load_lora_adapter", "load an adapter (does the block set enable_lora = true?)"); err != nil {
		return err
	}
	if err := checkAdapter(w.Path); err != nil {
		return err
	}
	resume, err := c.pause(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resume()) }()
	body := map[string]any{"lora_name": c.model, "lora_path": w.Path, "load_inplace": true}
	if err := c.post(ctx, "/v1/load_lora_adapter", body, nil); err != nil {
		return fmt.Errorf("load the adapter %s: %w", w.Path, err)
	}
	if err := c.forget(ctx); err != nil {
		return err
	}
	return c.label(ctx, o, w.Version)
}

// pause stops generation between two steps and returns what lets it go on. Requests in flight are kept, the gateway in front decides
// whether there are any, and go on with what has been computed of them: to compute it anew costs about a second, and the gateway
// records both versions.
func (c *client) pause(ctx context.Context, o offers) (resume func() error, err error) {
	if o.lacks("/pause") {
		return func() error { return nil }, nil // older servers: the gateway's hold is all there is
	}
	resume = func() error {
		// Not the caller's context: the way back must be taken when that has ended, too.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resumeTimeout)
		defer cancel()
		if err := c.post(ctx, "/resume", nil, nil); err != nil {
			return fmt.Errorf("resume generation after an update: %w", err)
		}
		return nil
	}
	if err := c.post(ctx, "/pause?"+url.Values{"mode": {"keep"}, "clear_cache": {"false"}}.Encode(), nil, nil); err != nil {
		return nil, errors.Join(fmt.Errorf("pause generation for an update: %w", err), resume())
	}
	return resume, nil
}

// label tells the server the version of its weights. It is a name, not evidence; the sync block proves the weights.
func (c *client) label(ctx context.Context, o offers, version int64) error {
	if o.lacks("/update_weight_version") {
		return nil
	}
	if err := c.post(ctx, "/update_weight_version", map[string]any{"new_version": strconv.FormatInt(version, 10)}, nil); err != nil {
		return fmt.Errorf("label the weights as version %d: %w", version, err)
	}
	return nil
}

// zeroAdapter has the server write an adapter that changes nothing and load it under the policy's name, so that clients can
// use one name from the first request on: vLLM refuses an adapter that is called like the base model.
func (c *client) zeroAdapter(ctx context.Context, dir string) error {
	path := filepath.Join(dir, "adapter-zero")
	if _, err := c.call(ctx, "recipe_zero_adapter", map[string]any{"path": path}); err != nil {
		return fmt.Errorf("make the first adapter: %w", err)
	}
	body := map[string]any{"lora_name": c.model, "lora_path": path, "load_inplace": true}
	if err := c.post(ctx, "/v1/load_lora_adapter", body, nil); err != nil {
		return fmt.Errorf("load the first adapter: %w", err)
	}
	return nil
}
