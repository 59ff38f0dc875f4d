package inference

import (
	"fmt"
	"path/filepath"

	"github.com/recipe-rl/recipe/sdk"
)

// inside refuses weights in files that are not in the run directory, for a block with a sync block: that writes there
// and nowhere else, so any other path comes from another client.
func (h *host) inside(w sdk.Weights) error {
	if w.Path == "" || len(h.syncedBy) == 0 {
		return nil
	}
	path, err := filepath.EvalSymlinks(w.Path)
	if err != nil {
		return fmt.Errorf("find the weights of policy version %d: %w", w.Version, err)
	}
	dir, err := filepath.EvalSymlinks(h.runDir)
	if err != nil {
		return fmt.Errorf("find the run directory: %w", err)
	}
	if rel, err := filepath.Rel(dir, path); err != nil || !filepath.IsLocal(rel) {
		return fmt.Errorf("refused: the weights of policy version %d are in %s, which is not in the run directory %s; "+
			"publish them in the folder that the request of the sync block names", w.Version, path, dir)
	}
	return nil
}
