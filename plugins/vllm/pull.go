package vllm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/engine"
)

// pulled is what one worker says of weights that it has copied, or of why it has not.
type pulled struct {
	Unknown bool    `json:"unknown"` // it has not opened these handles: it is new, or the trainer is
	Refused string  `json:"refused"` // they cannot fit, and nothing was touched
	Path    string  `json:"path"`    // direct or loader
	Why     string  `json:"why"`     // what made it loader
	Tensors int     `json:"tensors"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

func (p pulled) String() string {
	text := fmt.Sprintf("%d tensors, %.1f MB copied in %.1f ms", p.Tensors, float64(p.Bytes)/1e6, p.Seconds*1e3)
	if p.Path != "direct" {
		text += " by vLLM's loader: " + p.Why
	}
	return text
}

// pull lets the workers copy a trainer's tensors, which they open once, or receive them by nccl. With transports ipc
// and nccl generation is paused meanwhile; live takes the moment between two steps of the engine.
func (c *client) pull(ctx context.Context, l engine.Load) (result pulled, err error) {
	w := l.Weights
	if err := c.offers.require("/collective_rpc", "copy weights into a running server"); err != nil {
		return pulled{}, err
	}
	var handles struct {
		Key string `json:"key"`
	}
	if err := json.Unmarshal([]byte(w.Handles), &handles); err != nil || handles.Key == "" {
		return pulled{}, &sdk.Error{Summary: fmt.Sprintf("version %d was published by %s without handles of its tensors",
			w.Version, w.Transport),
			Detail: "the trainer's plugin does not publish that way", Remedy: "set transport = \"reload\" in the sync block",
			Err: err}
	}
	if result, err = c.pullOnce(ctx, l, handles.Key); err == nil && result.Unknown {
		if err := c.attach(ctx, w); err != nil {
			return pulled{}, err
		}
		result, err = c.pullOnce(ctx, l, handles.Key)
	}
	switch {
	case err != nil:
		return pulled{}, err
	case result.Unknown:
		return pulled{}, errors.New("a worker forgot the trainer's tensors as soon as it had opened them; " +
			"does something restart it?")
	}
	return result, nil
}

// attach lets the workers open the tensors. It may take a moment, so generation continues meanwhile.
func (c *client) attach(ctx context.Context, w sdk.Weights) error {
	results, err := c.call(ctx, "recipe_attach", map[string]any{"handles": w.Handles})
	if err != nil {
		return fmt.Errorf("open the trainer's tensors: %w", err)
	}
	_, err = agree(results, w.Version)
	return err
}

func (c *client) pullOnce(ctx context.Context, l engine.Load, key string) (result pulled, err error) {
	w := l.Weights
	if w.Transport != "live" {
		resume, err := c.pause(ctx, l)
		if err != nil {
			return pulled{}, err
		}
		defer func() { err = errors.Join(err, resume()) }()
	}
	results, err := c.call(ctx, "recipe_pull", map[string]any{"key": key, "version": strconv.FormatInt(w.Version, 10)})
	if err != nil {
		return pulled{}, fmt.Errorf("copy version %d: %w", w.Version, err)
	}
	if result, err = agree(results, w.Version); err != nil || result.Unknown {
		return result, err
	}
	if w.Transport == "live" {
		return result, c.label(ctx, w.Version)
	}
	if err := c.forget(ctx); err != nil {
		return pulled{}, err
	}
	return result, c.label(ctx, w.Version)
}

// agree makes one answer of those of all workers.
func agree(results json.RawMessage, version int64) (pulled, error) {
	var list []pulled
	if err := json.Unmarshal(results, &list); err != nil || len(list) == 0 {
		return pulled{}, fmt.Errorf("the workers' answer to a copy of weights cannot be read: %s: %w",
			engine.Brief(string(results)), err)
	}
	all := list[0]
	for _, p := range list {
		if p.Refused != "" {
			return pulled{}, &sdk.Error{Summary: fmt.Sprintf("version %d does not fit: %s", version, p.Refused),
				Remedy: "trainer and server must have the same model and reach the same memory, or each other (nccl); transport " +
					"= \"reload\" goes through files"}
		}
		all.Unknown = all.Unknown || p.Unknown
		all.Seconds = max(all.Seconds, p.Seconds)
	}
	return all, nil
}

// workers asks the worker extension what it can reach.
func (c *client) workers(ctx context.Context, o *engine.Facts) error {
	results, err := c.call(ctx, "recipe_facts", nil)
	if err != nil {
		return err
	}
	var list []struct {
		Reach      []string `json:"reach"`
		Arithmetic string   `json:"arithmetic"`
		Device     string   `json:"device"`
		Machine    string   `json:"machine"`
	}
	if err := json.Unmarshal(results, &list); err != nil || len(list) == 0 {
		return fmt.Errorf("read the workers' answer: %s: %w", engine.Brief(string(results)), err)
	}
	o.Reach, o.Arithmetic, o.Device, o.Machine = list[0].Reach, list[0].Arithmetic, list[0].Device, list[0].Machine
	return nil
}

// forgetTries and forgetPause bound the attempts to empty the prefix cache.
const (
	forgetTries = 3
	forgetPause = 100 * time.Millisecond
)

// forget empties the prefix cache, in which the old weights have left what they computed. An engine refuses while any
// request holds a part of it, and some assert that none does; neither is worth ending a run: the gateway salts each
// request with the policy version, so that what is left is found by nobody, and the proof of the weights does not
// read the cache.
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
			// the server is gone
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
