package sglang

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/engine"
)

// Load implements engine.Client.
func (c *client) Load(ctx context.Context, l engine.Load) (note string, err error) {
	return engine.Ways{Adapter: c.loadAdapter, Copy: c.pull, Folder: c.reload, Plain: c.plainAdapter}.Load(ctx, l)
}

// reload loads a checkpoint folder into the running server.
func (c *client) reload(ctx context.Context, l engine.Load) error {
	w := l.Weights
	if err := engine.CheckCheckpoint(w.Path); err != nil { // before anything is touched
		return err
	}
	return c.whilePaused(ctx, l, func() error {
		// The format is given because a server may have been started with "dummy". The cache is emptied afterwards: asking
		// for it here while requests are held would end the server.
		body := map[string]any{"model_path": w.Path, "load_format": "auto", "flush_cache": false}
		if err := c.Post(ctx, "/update_weights_from_disk", body, nil); err != nil {
			return fmt.Errorf("load %s: %w", w.Path, err)
		}
		return nil
	})
}

// pull lets the workers copy a trainer's tensors, which they open once, or receive them by nccl.
func (c *client) pull(ctx context.Context, l engine.Load) (note string, err error) {
	attach := func(handles string) ([]engine.Copied, error) {
		workers, err := call[engine.Copied](ctx, c, request{Do: "attach", Handles: handles})
		if err != nil {
			return nil, fmt.Errorf("open the trainer's tensors: %w", err)
		}
		return workers, nil
	}
	pull := func(key string) ([]engine.Copied, error) {
		workers, err := call[engine.Copied](ctx, c, request{Do: "pull", Key: key, Version: l.Weights.Version})
		if err != nil {
			return nil, fmt.Errorf("copy version %d: %w", l.Weights.Version, err)
		}
		return workers, nil
	}
	err = c.whilePaused(ctx, l, func() error {
		note, err = engine.CopyTensors(title, l.Weights, attach, pull)
		return err
	})
	return note, err
}

// whilePaused changes the weights while no step is computed, labels the server with their version and empties its
// cache. Requests in flight are frozen and continue with what has been computed of them; the gateway in front decides
// whether there are any. Without the pause SGLang would wait until every request has ended, and admit no new one
// meanwhile. What was paused is resumed in any case.
func (c *client) whilePaused(ctx context.Context, l engine.Load, change func() error) (err error) {
	if !l.Asleep { // nothing runs there
		defer func() {
			ctx, cancel := engine.CleanupContext(ctx)
			defer cancel()
			err = errors.Join(err, c.resume(ctx))
		}()
		if err := c.Post(ctx, "/pause_generation", map[string]any{"mode": "in_place"}, nil); err != nil {
			return fmt.Errorf("pause generation for an update: %w", err)
		}
	}
	if err := change(); err != nil {
		return err
	}
	if err := c.label(ctx, l.Weights.Version); err != nil || l.Asleep {
		return err // the cache of a sleeping server was emptied when its memory was released
	}
	return c.forget(ctx)
}

// label sets the version of the server's weights. It is a name, not evidence; the sync block verifies the weights.
func (c *client) label(ctx context.Context, version int64) error {
	body := map[string]any{"new_version": strconv.FormatInt(version, 10), "abort_all_requests": false}
	if err := c.Post(ctx, "/update_weight_version", body, nil); err != nil {
		return fmt.Errorf("label the weights as version %d: %w", version, err)
	}
	return nil
}

func (c *client) resume(ctx context.Context) error {
	if err := c.Post(ctx, "/continue_generation", map[string]any{"torch_empty_cache": false}, nil); err != nil {
		return fmt.Errorf("resume generation: %w", err)
	}
	return nil
}

// forget empties the prefix cache, which holds what the old weights computed. SGLang refuses while there are requests;
// that is harmless: the gateway salts each request with the policy version, so no request finds old entries, and the
// check of an update also asks through the cache.
func (c *client) forget(ctx context.Context) error {
	err := c.Post(ctx, "/flush_cache", nil, nil)
	if status := (*engine.StatusError)(nil); err == nil || errors.As(err, &status) {
		return nil
	}
	return fmt.Errorf("empty the prefix cache, which still holds what the old weights computed: %w", err) // it is gone
}

// loadAdapter replaces the LoRA adapter that answers for the policy. SGLang refuses a second adapter of the same name,
// and frees the first only when no request uses it any more.
func (c *client) loadAdapter(ctx context.Context, l engine.Load) error {
	w := l.Weights
	if err := engine.CheckAdapter(w.Path); err != nil {
		return err
	}
	if n, err := c.busy(ctx); err != nil || n > 0 {
		if err != nil {
			return err
		}
		return &sdk.Error{Summary: "SGLang replaces an adapter only when no request uses it",
			Detail: fmt.Sprintf("%d requests are in flight", n),
			Remedy: "set in_flight = \"drain\" (or abort) in the sync block, or move merged weights: transport = \"auto\""}
	}
	if err := c.fits(w.Path); err != nil {
		return err
	}
	if err := c.knows(ctx, w.Path); err != nil {
		return err
	}
	if err := c.adapter(ctx, w.Path); err != nil {
		return err
	}
	if err := c.label(ctx, w.Version); err != nil {
		return err
	}
	return c.forget(ctx)
}

// fits returns an error if an adapter's rank is above the server's, before anything is unloaded: SGLang refuses it when
// the one before it is gone.
func (c *client) fits(path string) error {
	rank, err := engine.AdapterRank(path)
	if err != nil || rank <= c.config.MaxLoraRank {
		return err
	}
	return &sdk.Error{
		Summary: fmt.Sprintf("the adapter %s is of rank %d, and the server takes ranks up to %d; the adapter before it stays",
			path, rank, c.config.MaxLoraRank),
		Remedy: fmt.Sprintf("set max_lora_rank = %d in the inference block, or a smaller rank in the trainer's lora block",
			rank),
	}
}

// knows returns an error if an adapter changes a module that the server does not have, before anything is unloaded.
// SGLang accepts such an adapter, and its scheduler dies at the next request (0.5.23).
func (c *client) knows(ctx context.Context, path string) error {
	modules, err := engine.AdapterModules(path)
	if err != nil {
		return err
	}
	workers, err := call[lacking](ctx, c, request{Do: "unknown_modules", Modules: modules})
	if err != nil {
		return fmt.Errorf("ask which modules take an adapter: %w", err)
	}
	unknown, served := modules, []string{}
	for _, w := range workers { // with a pipeline, each has layers of its own
		unknown = slices.DeleteFunc(unknown, func(m string) bool { return !slices.Contains(w.Unknown, m) })
		served = append(served, w.Served...)
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(served)
	return &sdk.Error{
		Summary: fmt.Sprintf("%s changes %s, which the served model does not have (%s takes adapters in %s); the adapter "+
			"before it stays", filepath.Join(path, engine.AdapterFile), unknown[0], c.config.Model,
			strings.Join(slices.Compact(served), ", ")),
		Detail: fmt.Sprintf("%d of its %d modules are unknown there", len(unknown), len(modules)),
		Remedy: "train adapters of the model that the inference block serves, in modules that its lora_target_modules has, " +
			"or move merged weights: transport = \"auto\"",
	}
}

func (c *client) adapter(ctx context.Context, path string) error {
	err := c.Post(ctx, "/unload_lora_adapter", map[string]any{"lora_name": adapter}, nil)
	if status := (*engine.StatusError)(nil); err != nil && !errors.As(err, &status) { // else there was none
		return fmt.Errorf("unload the previous adapter: %w", err)
	}
	if err := c.Post(ctx, "/load_lora_adapter", map[string]any{"lora_name": adapter, "lora_path": path}, nil); err != nil {
		return fmt.Errorf("load the adapter %s: %w", path, err)
	}
	return nil
}

// plainAdapter has the server write an adapter that changes nothing and load it under the policy's name, so that
// clients can use one name from the first request on.
func (c *client) plainAdapter(ctx context.Context) error {
	if !c.config.EnableLora {
		return nil
	}
	path := filepath.Join(c.Address.Dir, "adapter-zero")
	if _, err := call[failure](ctx, c, request{Do: "zero_adapter", Path: path}); err != nil {
		return fmt.Errorf("make the first adapter: %w", err)
	}
	return c.adapter(ctx, path)
}
