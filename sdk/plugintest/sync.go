package plugintest

import (
	"context"
	"testing"

	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
)

// syncChecks are those of sync plugins: the weights of every step reach inference, and the trainer continues.
func syncChecks(t *testing.T, def *sdk.Definition, s Suite) {
	if s.Synced == nil {
		return
	}
	t.Run("weights reach inference", func(t *testing.T) {
		config, trainer, inference := s.Synced(t)
		b := s.harness(t, def)
		b.Start(config, s.Options...)
		b.Ready()
		trainer.WaitPhase(sdk.Completed)
		g := gateway.NewClient(inference.Output("control_url"), inference.Output("control_token"))
		defer g.Close()
		ctx, cancel := context.WithTimeout(t.Context(), Deadline)
		defer cancel()
		const steps = 3
		status, err := g.Status(ctx)
		if err != nil || status.Version != steps || status.Held {
			t.Errorf("inference serves version %d (held: %v, %v), want %d and open: every step is published",
				status.Version, status.Held, err, steps)
		}
		list, err := g.Logprobs(ctx, text[:])
		if err != nil || len(list) == 0 {
			t.Fatalf("log-probabilities of inference: %v", err)
		}
		want := FakeLogprobs(steps, text[:])
		if got := list[0].Logprobs; len(got) < len(want) || !equalJSON(got[len(got)-len(want):], want) {
			t.Errorf("inference gives the log-probabilities %v, want %v: the weights are not those of the last step", got,
				want)
		}
		b.Wait("event weights of version 3", func(e *pluginpb.Event) bool { return e.GetWeights().GetVersion() == steps })
	})
}
