package slurm

import (
	"os"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk/executor"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// TestCompliance runs on the cluster of scripts/slurm.sh; see make e2e-slurm.
func TestCompliance(t *testing.T) {
	shared := os.Getenv("RECIPE_SLURM_SHARED")
	if shared == "" {
		t.Skip("RECIPE_SLURM_SHARED names no folder that is shared with a Slurm cluster: make e2e-slurm sets it")
	}
	plugintest.Executor(t, plugintest.ExecutorSuite{Shared: shared, Staged: true, Patience: time.Minute,
		Open: func(dir string) (executor.Executor, error) { return New(Config{Partition: "gpu"}, dir), nil }})
}
