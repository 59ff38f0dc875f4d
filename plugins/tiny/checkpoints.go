package tiny

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/recipe-rl/recipe/plugins/tiny/lm"
)

// checkpointPath names checkpoints so that their names sort by step.
func checkpointPath(folder string, step int) string {
	return filepath.Join(folder, fmt.Sprintf("step-%08d.tiny", step))
}

// checkpoints lists those in a folder, newest first.
func checkpoints(folder string) []string {
	paths, err := filepath.Glob(filepath.Join(folder, "step-*.tiny"))
	if err != nil { // only a malformed pattern, which a folder's name may make of it
		return nil
	}
	slices.Sort(paths)
	slices.Reverse(paths)
	return paths
}

// removeUnfinished removes what a trainer that was killed while it wrote a checkpoint has left. Nobody reads it, but it
// takes room.
func removeUnfinished(folder string) {
	paths, err := filepath.Glob(filepath.Join(folder, ".step-*.tiny*"))
	if err != nil { // only a malformed pattern, which a folder's name may make of it
		return
	}
	for _, path := range paths {
		_ = os.Remove(path) // the next attempt retries what could not be removed
	}
}

// obsolete lists the checkpoints beyond the newest few.
func obsolete(folder string, keep int) []string {
	paths := checkpoints(folder)
	return paths[min(keep, len(paths)):]
}

// newest loads the newest checkpoint that continues the model, passing over damaged ones; nil if there is none.
func newest(folder string, base *lm.Checkpoint, log func(level, message string)) (*lm.Checkpoint, string) {
	for _, path := range checkpoints(folder) {
		c, err := lm.Load(path)
		if err == nil {
			widenLike(c, base.Params.Config)
		}
		if err == nil && (c.Params.Config != base.Params.Config || c.Alphabet != base.Alphabet) {
			err = fmt.Errorf("checkpoint %s is of another model than the recipe names", path)
		}
		if err == nil {
			return c, path
		}
		log("warn", fmt.Sprintf("passing over a checkpoint: %v", err))
	}
	return nil, ""
}
