package local

import (
	"testing"

	"github.com/recipe-rl/recipe/sdk/executor"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

func TestCompliance(t *testing.T) {
	t.Parallel()
	plugintest.Executor(t, plugintest.ExecutorSuite{
		Open: func(dir string) (executor.Executor, error) { return New(dir), nil },
	})
}
