package gateway

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk"
)

// Requests wait as long as the owner of a hold renews it, and no longer than HoldTimeout after the last renewal.
func TestWaitingFollowsTheRenewalsOfAHold(t *testing.T) {
	t.Parallel()
	clock := newClock()
	e := newEngine(t)
	g := start(t, Config{Clock: clock, HoldTimeout: time.Minute}, e)
	h, err := g.Hold(t.Context(), HoldRequest{Lease: 30 * time.Minute, Reason: "the trainer works"})
	if err != nil {
		t.Fatal(err)
	}
	waiting := background(t, g, "/v1/completions", prompt)
	eventually(t, "the request to wait", func() bool { return g.Status().Waiting == 1 })
	for range 10 {
		clock.advance(50 * time.Second)
		if _, err := g.Hold(t.Context(), HoldRequest{ID: h.ID, Lease: 30 * time.Minute}); err != nil {
			t.Fatal(err)
		}
		// It has looked at the clock when it waits for a new time, beside the lease of the hold.
		eventually(t, "the request to wait on", func() bool { return len(waiting) > 0 || clock.pending() == 2 })
		if len(waiting) > 0 {
			t.Fatalf("refused although the hold is renewed: %+v", <-waiting)
		}
	}
	second := background(t, g, "/v1/completions", prompt)
	eventually(t, "two requests to wait", func() bool { return g.Status().Waiting == 2 })
	if err := g.Resume(h.ID); err != nil {
		t.Fatal(err)
	}
	for _, r := range []reply{<-waiting, <-second} {
		if r.status != 200 {
			t.Errorf("got %d %s", r.status, r.body)
		}
	}
	if _, err := g.Hold(t.Context(), HoldRequest{Lease: 30 * time.Minute, Reason: "silence"}); err != nil {
		t.Fatal(err)
	}
	third := background(t, g, "/v1/completions", prompt)
	eventually(t, "the third to wait", func() bool { return g.Status().Waiting == 1 })
	clock.advance(time.Minute)
	if r := <-third; r.status != 503 || !strings.Contains(r.body, "silence") {
		t.Errorf("got %d %s, want a refusal with the reason", r.status, r.body)
	}
}

func TestAnUpdateWaitsForAReplica(t *testing.T) {
	t.Parallel()
	clock := newClock()
	g := start(t, Config{Clock: clock, Update: func(context.Context, []Replica, WeightUpdate) error { return nil }},
		newEngine(t))
	if err := g.Admit(t.Context(), "0", UnknownVersion); err == nil {
		t.Error("a replica of unknown weights was let in")
	}
	if err := g.ReplicaLost("0", "being started again"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := g.UpdateWeights(context.Background(), WeightUpdate{Weights: sdk.Weights{Version: 1}})
		done <- err
	}()
	eventually(t, "the update to wait", func() bool { return len(done) > 0 || clock.pending() > 0 })
	if len(done) > 0 {
		t.Fatalf("it did not wait: %v", <-done)
	}
	if err := g.SetReplicaHealthy("0", true, ""); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if s := g.Status(); s.Version != 1 || !s.Replicas[0].Ready {
		t.Errorf("status %+v", s)
	}
}

func TestAnUpdateThatTimesOutNamesWhatItWaitedFor(t *testing.T) {
	t.Parallel()
	clock := newClock()
	g := start(t, Config{Clock: clock, Update: func(context.Context, []Replica, WeightUpdate) error { return nil }},
		newEngine(t))
	if err := g.ReplicaLost("0", "it ran out of memory"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := g.UpdateWeights(context.Background(), WeightUpdate{Weights: sdk.Weights{Version: 1}})
		done <- err
	}()
	eventually(t, "the update to wait", func() bool { return clock.pending() > 0 })
	clock.advance(5 * time.Minute)
	if err := <-done; !errors.Is(err, errLate) || !strings.Contains(err.Error(), "0: it ran out of memory") {
		t.Errorf("got %v, want the replica and why it is out", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := g.UpdateWeights(ctx, WeightUpdate{Weights: sdk.Weights{Version: 1}}); !errors.Is(err,
		context.DeadlineExceeded) || !strings.Contains(err.Error(), "it ran out of memory") {
		t.Errorf("got %v, want the deadline and what it waited for", err)
	}
}
