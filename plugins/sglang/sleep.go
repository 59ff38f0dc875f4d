package sglang

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/kit/engine"
)

// The parts of a server's memory as SGLang names them. Graphs come back with the cache, when the weights are in place.
const (
	weightsTag = "weights"
	cacheTag   = "kv_cache"
	graphTag   = "cuda_graph"
)

// SGLang has no route that says whether a server sleeps, and it ends when a part is acquired that it has. So the parts
// are written to a file of the replica before they are released.
func (c *client) asleepFile() string { return filepath.Join(c.Address.Dir, "asleep") }

func (c *client) sleeping() ([]string, error) {
	data, err := regular.ReadFile(c.asleepFile(), regular.Record)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return strings.Fields(string(data)), err
}

func (c *client) setSleeping(parts []string) error {
	if len(parts) == 0 {
		return os.Remove(c.asleepFile())
	}
	if err := os.MkdirAll(c.Address.Dir, 0o700); err != nil {
		return err
	}
	return regular.WriteFile(c.asleepFile(), []byte(strings.Join(parts, " ")))
}

// Sleep implements engine.Sleeper. SGLang releases memory only when it has no request at all, and ends otherwise.
func (c *client) Sleep(ctx context.Context, level inference.SleepLevel) error {
	if level == inference.SleepKeep && !c.config.backup() {
		return &sdk.Error{Summary: "this server cannot keep its weights while it sleeps",
			Detail: "enable_weights_cpu_backup = false",
			Remedy: "leave enable_weights_cpu_backup out of the inference block, or set sleep_level = 2 in the sync block"}
	}
	if sleeping, err := c.sleeping(); err == nil && len(sleeping) > 0 {
		return nil // a repeated call: the first answer was lost
	}
	n, err := c.busy(ctx)
	if err != nil {
		return fmt.Errorf("ask whether the server has requests: %w", err)
	}
	if n > 0 {
		return &sdk.Error{Summary: "SGLang sleeps only when it has no requests", Detail: fmt.Sprintf("%d are in flight", n),
			Remedy: "set in_flight = \"drain\" (or abort) in the sync block, or colocated = \"share\""}
	}
	parts := []string{cacheTag, weightsTag, graphTag}
	if err := c.setSleeping(parts); err != nil {
		return fmt.Errorf("record that the server sleeps: %w", err)
	}
	if err := c.Post(ctx, "/release_memory_occupation", map[string]any{"tags": parts}, nil); err != nil {
		return fmt.Errorf("put the server to sleep: %w", err)
	}
	return nil
}

// Wake implements engine.Sleeper.
func (c *client) Wake(ctx context.Context, part engine.Part) error {
	sleeping, err := c.sleeping()
	if err != nil {
		return fmt.Errorf("read which memory the server has released: %w", err)
	}
	var back, rest []string
	for _, p := range sleeping {
		if part == engine.AllOfIt || (part == engine.Weights) == (p == weightsTag) {
			back = append(back, p)
		} else {
			rest = append(rest, p)
		}
	}
	if len(back) == 0 {
		return nil
	}
	slices.Sort(back)
	if err := c.Post(ctx, "/resume_memory_occupation", map[string]any{"tags": back}, nil); err != nil {
		return fmt.Errorf("wake the server's %s: %w", strings.Join(back, ", "), err)
	}
	if err := c.setSleeping(rest); err != nil {
		return fmt.Errorf("record that the server is awake: %w", err)
	}
	return nil
}

// Asleep implements engine.Sleeper.
func (c *client) Asleep(context.Context) (bool, error) {
	sleeping, err := c.sleeping()
	return len(sleeping) > 0, err
}
