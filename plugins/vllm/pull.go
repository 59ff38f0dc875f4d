package vllm

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/recipe-rl/recipe/sdk/kit/engine"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// pull lets the workers copy a trainer's tensors, which they open once, or receive them by nccl. Opening them may take
// a moment, so generation continues meanwhile.
func (c *client) pull(ctx context.Context, l engine.Load) (note string, err error) {
	if err := c.offers.require("/collective_rpc", "copy weights into a running server"); err != nil {
		return "", err
	}
	attach := func(handles string) (workers []engine.Copied, err error) {
		if err := c.call(ctx, "recipe_attach", map[string]any{"handles": handles}, &workers); err != nil {
			return nil, fmt.Errorf("open the trainer's tensors: %w", err)
		}
		return workers, nil
	}
	return engine.CopyTensors(title, l.Weights, attach, func(key string) ([]engine.Copied, error) {
		return c.pullOnce(ctx, l, key)
	})
}

// pullOnce copies tensors that the workers may have opened. With transports ipc and nccl generation is paused
// meanwhile; live copies between two steps of the engine.
func (c *client) pullOnce(ctx context.Context, l engine.Load, key string) (workers []engine.Copied, err error) {
	w := l.Weights
	if w.Transport != transport.Live {
		var resume func() error
		if resume, err = c.pause(ctx, l); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, resume()) }()
	}
	kwargs := map[string]any{"key": key, "version": strconv.FormatInt(w.Version, 10)}
	if err := c.call(ctx, "recipe_pull", kwargs, &workers); err != nil {
		return nil, fmt.Errorf("copy version %d: %w", w.Version, err)
	}
	if !engine.AllCopied(workers) {
		return workers, nil
	}
	if w.Transport != transport.Live {
		if err := c.forget(ctx); err != nil {
			return nil, err
		}
	}
	return workers, c.label(ctx, w.Version)
}

// workers asks the worker extension what it can reach.
func (c *client) workers(ctx context.Context) (engine.WorkerFacts, error) {
	var list []engine.WorkerFacts
	if err := c.call(ctx, "recipe_facts", nil, &list); err != nil {
		return engine.WorkerFacts{}, err
	}
	if len(list) == 0 {
		return engine.WorkerFacts{}, errors.New("no worker answered recipe_facts")
	}
	return list[0], nil
}

// forgetTries and forgetPause bound the attempts to empty the prefix cache.
const (
	forgetTries = 3
	forgetPause = 100 * time.Millisecond
)

// forget empties the prefix cache, which holds what the old weights computed. An engine refuses while a request holds a
// part of it, and some assert that none does; both are harmless: the gateway salts each request with the policy
// version, so no request finds old entries, and the check of an update also asks through the cache.
func (c *client) forget(ctx context.Context) error {
	var last error
	for range forgetTries {
		out := struct {
			Success *bool `json:"success"`
		}{}
		status := (*engine.StatusError)(nil)
		err := c.Post(ctx, "/reset_prefix_cache", nil, &out)
		switch {
		case err == nil && (out.Success == nil || *out.Success):
			return nil
		case err == nil:
			last = errors.New("requests hold parts of it")
		case errors.As(err, &status):
			last = err
		default:
			return fmt.Errorf("empty the prefix cache, which still holds what the old weights computed: %w", err)
		}
		if err := engine.Pause(ctx, forgetPause); err != nil {
			return fmt.Errorf("empty the prefix cache: %w", errors.Join(err, last))
		}
	}
	if c.Address.Warn != nil {
		c.Address.Warn(fmt.Sprintf("the prefix cache could not be emptied (%v); what it holds is not used, because "+
			"requests carry the policy version as cache_salt", last))
	}
	return nil
}
