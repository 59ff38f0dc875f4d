package sync_test

import (
	"testing"

	"github.com/recipe-rl/recipe/plugins/sync"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// BenchmarkUpdate is one weight update of a model without weights: the cost of holding, publishing, verifying and
// acknowledging, without transferring weights.
func BenchmarkUpdate(b *testing.B) {
	server := plugintest.Harness(b, plugintest.FakeInference())
	server.Start(plugintest.FakeConfig{})
	server.Ready()
	train := plugintest.Harness(b, plugintest.FakeTrainer())
	train.Start(plugintest.FakeTrainerConfig{Steps: int64(b.N)}, syncedBy)
	train.Ready()
	s := plugintest.Harness(b, sync.Definition())
	b.ResetTimer()
	s.Start(config(train, server))
	train.WaitPhase(sdk.Completed)
}
