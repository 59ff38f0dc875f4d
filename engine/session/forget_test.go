package session_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/engine/state"
)

// A run that goes on writes new weights and removes old ones while it is looked at.
func TestFoldersThatVanishMeanwhileCanBeRemoved(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	weights := filepath.Join(dir, "blocks", "sync.weights.policy", "weights", "v1", "shard")
	done, over := make(chan struct{}), sync.WaitGroup{}
	over.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if err := os.MkdirAll(weights, 0o755); err != nil {
				t.Error(err)
			}
			if err := os.RemoveAll(filepath.Dir(weights)); err != nil {
				t.Error(err)
			}
		}
	})
	defer over.Wait()
	defer close(done)
	for range 3000 {
		if err := session.Removable(state.Dir(dir), true); err != nil {
			t.Fatal(err)
		}
	}
}
