package environment_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// A stop while the environment is opened is no failure, also when the error says only what was asked at that moment.
func TestAStopWhileItOpens(t *testing.T) {
	t.Parallel()
	opening := make(chan struct{})
	def := environment.Define("letters", "Counts letters.",
		func(ctx context.Context, _ environment.Setup[config]) (*letters, error) {
			close(opening)
			<-ctx.Done()
			return nil, errors.New("GET /schema: no answer")
		})
	api := plugintest.FakeTrajectories(t, 16)
	server := plugintest.Harness(t, plugintest.FakeInference())
	server.Start(plugintest.FakeConfig{})
	server.Ready()
	ref := api.Reference()
	b := plugintest.Harness(t, def)
	b.Start(config{Letter: "a", Settings: environment.Settings{Inference: server.Reference(), Trajectories: &ref,
		GroupSize: 4, MaxTokens: 8, Temperature: 1, TopP: 1, Concurrency: 4, MaxBatchesOffpolicy: 1,
		RequestTimeout: time.Minute}})
	<-opening
	if err := b.Stop(time.Minute); err != nil {
		t.Fatal(err)
	}
	b.WaitPhase(sdk.Stopped)
}
