package inference_test

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/plugintest"

	"github.com/recipe-rl/recipe/sdk"
)

// Weights that failed their check are not served because the plugin reports that its engine has them.
func TestWhatAPluginHasLoadedIsNotTrusted(t *testing.T) {
	t.Parallel()
	s := newServer()
	b := plugintest.Harness(t, s.definition())
	at := engine(t)
	b.Start(serverConfig{Engines: []string{at}})
	b.Ready()
	replicas(t, b, "replica that serves", func(s gateway.Status) bool { return through(s) == 1 })
	g := gateway.NewClient(b.Output("control_url"), b.Output("control_token"))
	defer g.Close()
	check := &gateway.Check{Tokens: []int{1, 2}, Logprobs: []float64{0, -5}, Tolerance: 1e-3} // the plugin gives 0
	if _, err := g.UpdateWeights(t.Context(), gateway.WeightUpdate{Weights: sdk.Weights{Version: 1, Path: "/w"},
		Check: check}); err == nil || !strings.Contains(err.Error(), "differ") {
		t.Fatalf("update: %v, want %v", err, gateway.ErrMismatch)
	}
	s.say(inference.Replica{ID: at, URL: at, Version: 1})
	admitsAnother(t, b, s, func(status gateway.Status) {
		if r := status.Replicas[0]; r.Ready || status.Version != 0 {
			t.Errorf("the gateway is at version %d with %+v; want version 0 with this replica closed", status.Version, r)
		}
	})
}
