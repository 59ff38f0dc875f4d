package gateway

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk"
)

func TestKeep(t *testing.T) {
	t.Parallel()
	clock := newClock()
	g := start(t, Config{Clock: clock}, newEngine(t))
	for _, bad := range []struct {
		id    string
		lease time.Duration
	}{{"", time.Second}, {strings.Repeat("x", 101), time.Second}, {"a", -1}, {"a", time.Hour}} {
		if _, err := g.Keep(bad.id, bad.lease, nil); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
	kept := func(want bool, when string) {
		t.Helper()
		if g.Status().Kept != want {
			t.Errorf("%s: kept is %v", when, !want)
		}
	}
	keep := func(id string, lease time.Duration) {
		t.Helper()
		if _, err := g.Keep(id, lease, nil); err != nil {
			t.Error(err)
		}
	}
	kept(false, "at first")
	keep("a", 10*time.Second)
	keep("b", 20*time.Second)
	kept(true, "two ask for it")
	keep("b", 0)
	clock.advance(11 * time.Second)
	kept(false, "one lease is over, the other was given back")
	keep("a", 10*time.Second)
	clock.advance(9 * time.Second)
	keep("a", 10*time.Second)
	clock.advance(9 * time.Second)
	kept(true, "renewed")
}

// Weights of a step are kept from the moment that they are served, and not those before.
func TestKeepOfAStep(t *testing.T) {
	t.Parallel()
	clock := newClock()
	e := newEngine(t)
	g := start(t, Config{Clock: clock, Update: func(context.Context, []Replica, WeightUpdate) error { return nil }}, e)
	step := func(n int64) *int64 { return &n }
	kept, err := g.Keep("a", 10*time.Second, step(25))
	if err != nil || kept.Version != 0 || kept.Step == nil || *kept.Step != 0 {
		t.Errorf("at first %+v, %v; want the weights of step 0", kept, err)
	}
	if _, err := g.Keep("b", 20*time.Second, step(50)); err != nil {
		t.Error(err)
	}
	if s := g.Status(); s.Kept || s.KeptAt == nil || *s.KeptAt != 25 {
		t.Errorf("kept at %v (%v); want the smaller step, 25, and nothing that delays every update", s.KeptAt, s.Kept)
	}
	clock.advance(11 * time.Second)
	if s := g.Status(); s.KeptAt == nil || *s.KeptAt != 50 {
		t.Errorf("kept at %v; want 50, as the other lease is over", s.KeptAt)
	}
	if _, err := g.Keep("a", time.Second, step(-1)); err == nil {
		t.Error("a negative step is accepted")
	}
	for _, of := range []*int64{step(4), nil} {
		version := g.Version() + 1
		if _, err := g.UpdateWeights(t.Context(), WeightUpdate{Weights: sdk.Weights{Version: int64(version)},
			Step: of}); err != nil {
			t.Fatal(err)
		}
		kept, err := g.Keep("b", 0, nil)
		if err != nil || kept.Version != version || (kept.Step == nil) != (of == nil) ||
			of != nil && *kept.Step != *of {
			t.Errorf("after an update to step %v: %+v, %v", of, kept, err)
		}
	}
	if s := g.Status(); s.KeptAt != nil {
		t.Errorf("kept at %d after all is over", *s.KeptAt)
	}
}
