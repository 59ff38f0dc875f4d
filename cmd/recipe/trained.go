package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/recipe-rl/recipe/engine/lineage"
	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// checkpointFor is the checkpoint that the recipe's run has of the weights which inference block b serves: that of step
// at, or the newest. It is nil when no sync block brings b weights, or the run has no checkpoint yet.
func checkpointFor(r *schema.Recipe, b addr.Block, at int64) (*lineage.Checkpoint, error) {
	dir := state.DirOf(r.Dir, r.Name)
	trainers := trainersOf(r, b)
	if len(trainers) == 0 || !dir.Exists() {
		return nil, nil
	}
	found, err := session.CheckpointsAt(dir, at)
	if errors.Is(err, session.ErrNoCheckpoint) && at == session.Newest {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, l := range found {
		if slices.Contains(trainers, l.Checkpoint.Address) {
			return l.Checkpoint, nil
		}
	}
	return nil, nil
}

// trainersOf are the trainers whose weights a sync block brings to inference block b.
func trainersOf(r *schema.Recipe, b addr.Block) []addr.Block {
	var out []addr.Block
	for _, s := range r.Blocks {
		if s.Addr.Kind != kind.Sync || !slices.ContainsFunc(s.Needs, func(n schema.Need) bool { return n.On == b }) {
			continue
		}
		for _, n := range s.Needs {
			if n.On.Kind == kind.Trainer {
				out = append(out, n.On)
			}
		}
	}
	return out
}

// servable is the policy that an inference block is started with to serve a checkpoint.
func servable(c *lineage.Checkpoint) (sdk.Policy, error) {
	path, err := filepath.Abs(c.Path) // the block runs in a folder of its own
	if err != nil {
		return sdk.Policy{}, err
	}
	p := sdk.Policy{Version: c.Version, Weights: path, Format: c.Address.Plugin}
	info, err := os.Stat(path)
	if err != nil {
		return p, fmt.Errorf("the checkpoint of step %d: %w", c.Step, err)
	}
	// The run directory may come from somewhere else: no link in it names what is loaded, and no pipe is waited for.
	if err := session.CheckFiles(path); err != nil {
		return p, fmt.Errorf("the checkpoint of step %d: %w", c.Step, err)
	}
	if !info.IsDir() {
		return p, nil
	}
	p.Format = "hf"
	if _, err := os.Stat(filepath.Join(path, "config.json")); errors.Is(err, fs.ErrNotExist) {
		return p, &sdk.Error{Summary: fmt.Sprintf("the checkpoint of step %d (%s) holds no whole model", c.Step, c.Path),
			Remedy: "name another with --at STEP, or use --at 0 for the weights that the recipe names"}
	}
	return p, nil
}
