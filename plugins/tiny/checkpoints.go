package tiny

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/recipe-rl/recipe/internal/evaluated"
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

// obsolete lists the checkpoints to remove: all but the newest few and the ones that stay for their evaluation. Where
// the results of evaluations cannot be read there is a warning.
func obsolete(folder string, keep, best int, metric string) (paths []string, warning string) {
	all := checkpoints(folder)
	beyond := all[min(keep, len(all)):]
	if best == 0 || metric == "" || len(beyond) == 0 {
		return beyond, ""
	}
	kept, warning := evaluated.Keep(folder, metric, stepsOf(all), stepsOf(beyond), best)
	return slices.DeleteFunc(beyond, func(path string) bool { return slices.Contains(kept, stepOf(path)) }), warning
}

// stepsOf are the steps of checkpoints, ascending.
func stepsOf(paths []string) []int64 {
	var steps []int64
	for _, path := range slices.Backward(paths) {
		steps = append(steps, stepOf(path))
	}
	return steps
}

// stepOf is the step in the name of a checkpoint; -1: there is none.
func stepOf(path string) int64 {
	name, _ := strings.CutPrefix(filepath.Base(path), "step-")
	step, err := strconv.ParseInt(strings.TrimSuffix(name, ".tiny"), 10, 64)
	if err != nil {
		return -1
	}
	return step
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
