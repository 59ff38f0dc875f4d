package arithmetic

import (
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// A group has the same scores when it is scored again.
func TestRescoredAsScored(t *testing.T) {
	t.Parallel()
	api := plugintest.FakeTrajectories(t, 4)
	server := plugintest.Harness(t, plugintest.FakeInference())
	server.Start(plugintest.FakeConfig{})
	server.Ready()
	book := api.Reference()
	b := plugintest.Harness(t, Definition())
	b.Start(Config{Settings: environment.Settings{Inference: server.Reference(), Trajectories: &book, GroupSize: 4,
		MaxTokens: 4, Temperature: 1, TopP: 1, MaxBatchesOffpolicy: 1, RequestTimeout: time.Minute}})
	g := api.Wait(1)[0]
	made := b.Rescore(g)
	if len(made.GetCompletions()) != len(g.Scores) {
		t.Fatalf("scored again: %v", made)
	}
	for i, c := range made.GetCompletions() {
		if c.Score == nil || c.GetScore() != g.Scores[i] {
			t.Errorf("completion %d has the score %v, and %v when it is scored again", i, g.Scores[i], c)
		}
	}
}
