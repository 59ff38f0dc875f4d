package tracking

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
)

// Missing returns what a tracker lacks on this machine, as far as it shows without starting a process; empty: nothing.
func Missing(t decode.Tracking, recipeDir string) string {
	packages := Packages(t.Tracker)
	if packages.Empty() {
		return ""
	}
	path, err := interpreter.Find(t.Runtime, packages, recipeDir, os.Getenv)
	if err != nil {
		return err.Error()
	}
	prepared, managed, err := interpreter.Of(t.Runtime, packages, recipeDir)
	if err == nil && managed && !prepared.Ready() && os.Getenv("VIRTUAL_ENV") == "" {
		return fmt.Sprintf("its Python environment does not exist on this machine: run recipe init, or %s must have %s",
			path, packages.Requirements[0])
	}
	return ""
}

// Unsynced are the offline runs of W&B in a run directory that were not passed on by wandb sync, which marks those that
// it has passed on.
func Unsynced(dir state.Dir) []string {
	found, _ := filepath.Glob(filepath.Join(string(dir), "tracking", "wandb.*", "files", "wandb", "offline-run-*"))
	var out []string
	for _, run := range found {
		files, _ := filepath.Glob(filepath.Join(run, "*.wandb"))
		synced, _ := filepath.Glob(filepath.Join(run, "*.wandb.synced"))
		if len(files) > 0 && len(synced) == 0 {
			out = append(out, run)
		}
	}
	return out
}
