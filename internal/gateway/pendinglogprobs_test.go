package gateway

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
)

// promising starts an update whose check is promised, and waits until the weights have been loaded.
func promising(ctx context.Context, t *testing.T, mode Mode) (*Gateway, chan error) {
	t.Helper()
	loaded := make(chan struct{})
	g := start(t, Config{Update: func(context.Context, []Replica, WeightUpdate) error {
		close(loaded)
		return nil
	}}, newEngine(t))
	done := make(chan error, 1)
	go func() {
		_, err := g.UpdateWeights(ctx, WeightUpdate{Weights: sdk.Weights{Version: 1}, Mode: mode,
			Check: &Check{Tokens: []int{5, 6, 7}, Tolerance: 1e-3, Later: "a"}})
		done <- err
	}()
	<-loaded
	return g, done
}

// What the trainer says may come after the weights have been loaded; nothing serves them before.
func TestTheCheckWaitsForTheTrainer(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{ModeDrain, ModeKeep, ModeNone} {
		for name, c := range map[string]struct {
			expect Expectation
			want   string
		}{
			"the same":      {Expectation{ID: "a", Logprobs: []float64{0, -1.5, -2.5}}, ""},
			"other weights": {Expectation{ID: "a", Logprobs: []float64{0, -1.5, -2.6}}, "served weights differ"},
			"none":          {Expectation{ID: "a", Error: "it has died"}, "it has died"},
			"of other text": {Expectation{ID: "a", Logprobs: []float64{0, -1.5}}, "got 2 for 3 tokens"},
		} {
			t.Run(string(mode)+" "+name, func(t *testing.T) {
				t.Parallel()
				g, done := promising(t.Context(), t, mode)
				if g.Version() != 0 {
					t.Error("the version has risen before the weights were verified")
				}
				if mode != ModeNone && !g.Status().Held {
					t.Error("requests go through before the weights were verified")
				}
				select {
				case err := <-done:
					t.Fatalf("the update ended before the trainer had said anything: %v", err)
				default:
				}
				if err := g.Expect(c.expect); err != nil {
					t.Fatal(err)
				}
				err := <-done
				ready := g.Status().Replicas[0].Ready
				if c.want == "" && (err != nil || g.Version() != 1 || !ready || g.last.Check.Logprobs[2] != -2.5 ||
					g.last.Check.Later != "") {
					t.Errorf("%v, version %d, ready %v, %+v", err, g.Version(), ready, g.last.Check)
				}
				if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || g.Version() != 0 || ready) {
					t.Errorf("error %v, want one with %q; version %d, ready %v", err, c.want, g.Version(), ready)
				}
				if g.pending != nil {
					t.Error("the promise is kept after the update")
				}
			})
		}
	}
}

// An update whose trainer never answers ends with its own deadline, and leaves nothing in service.
func TestAnUpdateEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	g, done := promising(ctx, t, ModeDrain)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if s := g.Status(); s.Version != 0 || s.Replicas[0].Ready {
		t.Errorf("after it: %+v", s)
	}
}

// The trainer may be quicker than the engine; and the control endpoint has a route for what it says.
func TestWhatTheTrainerSaysMayComeBeforeTheUpdate(t *testing.T) {
	t.Parallel()
	g := start(t, Config{Update: func(context.Context, []Replica, WeightUpdate) error { return nil }}, newEngine(t))
	c := NewClient(g.URL(), adminToken)
	defer c.Close()
	if s, err := c.Status(t.Context()); err != nil || !s.Expects {
		t.Fatalf("the status does not say that it can wait: %+v %v", s, err)
	}
	for _, id := range []string{"of an update that never came", "b"} {
		if err := c.Expect(t.Context(), Expectation{ID: id, Logprobs: []float64{0, -1.5, -2.5}}); err != nil {
			t.Fatal(err)
		}
	}
	u := WeightUpdate{Weights: sdk.Weights{Version: 1}, Check: &Check{Tokens: []int{5, 6, 7}, Tolerance: 1e-3, Later: "b"}}
	if r, err := c.UpdateWeights(t.Context(), u); err != nil || r.Version != 1 || r.Check <= 0 || r.Check > r.Load {
		t.Errorf("%+v %v", r, err)
	}
	for _, wrong := range []Expectation{{}, {ID: "c"}, {Logprobs: []float64{0}}, {ID: "c", Logprobs: []float64{0},
		Error: "both"}} {
		if err := c.Expect(t.Context(), wrong); err == nil || !strings.Contains(err.Error(), "want an id") {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}
