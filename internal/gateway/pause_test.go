package gateway

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk"
)

// A paused gateway keeps requests for longer than it would for a hold, and weights are updated meanwhile.
func TestRequestsWaitForTheEndOfAPause(t *testing.T) {
	t.Parallel()
	e, clock := newEngine(t), newClock()
	g := start(t, Config{Clock: clock, HoldTimeout: time.Minute,
		Update: each(func(context.Context, Replica, WeightUpdate) error { return nil })}, e)
	g.SetPaused(true)
	g.SetPaused(true)
	if g.Status().Paused.IsZero() {
		t.Error("the status does not say that it is paused")
	}
	waiting := background(t, g, "/v1/completions", prompt)
	eventually(t, "the request to wait", func() bool { return g.Status().Waiting == 1 })
	if p := g.Traffic(); !p.Paused || p.Why != "" {
		t.Errorf("the pulse: %+v", p)
	}
	if _, err := g.UpdateWeights(t.Context(), WeightUpdate{Weights: sdk.Weights{Version: 1, Path: "/w"}}); err != nil {
		t.Errorf("a weight update in a pause: %v", err)
	}
	for range 5 {
		clock.advance(time.Minute)
	}
	if n := g.Status().Waiting; n != 1 {
		t.Errorf("%d requests wait after five times the hold's timeout, want 1", n)
	}
	g.SetPaused(false)
	if r := <-waiting; r.status != http.StatusOK {
		t.Errorf("the request got %d %s", r.status, r.body)
	}
	if !g.Status().Paused.IsZero() {
		t.Error("it is still paused")
	}
}
