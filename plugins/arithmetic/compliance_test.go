package arithmetic

import (
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

//docs:survival.md all servers of one of several inference blocks are being started again
func TestCompliance(t *testing.T) {
	groups := func(t *testing.T) (any, *plugintest.Trajectories) {
		api := plugintest.FakeTrajectories(t, 16)
		server := plugintest.Harness(t, plugintest.FakeInference())
		server.Start(plugintest.FakeConfig{})
		server.Ready()
		book := api.Reference()
		return Config{Settings: environment.Settings{
			Inference: server.Reference(), Trajectories: &book, GroupSize: 4, MaxTokens: 4, Temperature: 1, TopP: 1,
			Concurrency: 4, MaxBatchesOffpolicy: 1, RequestTimeout: time.Minute,
		}}, api
	}
	plugintest.Compliance(t, Definition(), plugintest.Suite{
		Config: func(t *testing.T) any { c, _ := groups(t); return c },
		Groups: groups,
	})
}
