package local

import (
	"testing"

	"github.com/recipe-rl/recipe/sdk/executor"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

func TestCompliance(t *testing.T) {
	t.Parallel()
	plugintest.Executor(t, plugintest.ExecutorSuite{
		Staged: true,
		Open:   func(dir string) (executor.Executor, error) { return New(dir), nil },
	})
}

// TestComplianceOfAPlugin asks the executor over the protocol of plugins.
func TestComplianceOfAPlugin(t *testing.T) {
	t.Parallel()
	plugintest.Compliance(t, Plugin(), plugintest.Suite{Config: func(*testing.T) any { return Config{} }})
}
