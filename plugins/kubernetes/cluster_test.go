package kubernetes

import (
	"os"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk/executor"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// TestComplianceOnACluster runs on the cluster of scripts/kubernetes.sh; see make e2e-kubernetes.
func TestComplianceOnACluster(t *testing.T) {
	shared := os.Getenv("RECIPE_KUBERNETES_SHARED")
	if shared == "" {
		t.Skip("RECIPE_KUBERNETES_SHARED names no folder that is shared with a cluster: make e2e-kubernetes sets it")
	}
	c := Config{Image: "recipe.test/recipe:1", ImagePullPolicy: "Never",
		Volumes: []Volume{{Path: shared, HostPath: shared}}}
	if os.Getenv("RECIPE_KUBERNETES_GANGS") != "" {
		c.GangScheduler = "coscheduling"
	}
	plugintest.Executor(t, plugintest.ExecutorSuite{Shared: shared, Staged: true, Alone: true, Patience: time.Minute,
		Open: func(string) (executor.Executor, error) { return New(c), nil }})
}
