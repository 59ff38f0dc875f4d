package gateway

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk"
)

// sleepers record the calls to engines that can sleep.
type sleepers struct {
	mu    sync.Mutex
	calls []string
	fail  error // of Recover
}

func (d *sleepers) note(call string) {
	d.mu.Lock()
	d.calls = append(d.calls, call)
	d.mu.Unlock()
}

func (d *sleepers) said() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

func (d *sleepers) config() Config {
	return Config{
		Update: func(context.Context, []Replica, WeightUpdate) error { d.note("update"); return nil },
		Sleep: func(_ context.Context, level int) error {
			d.note("sleep " + string(rune('0'+level)))
			return nil
		},
		Recover: func(context.Context, []Replica) error {
			d.note("wake")
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.fail
		},
	}
}

func holdAsleep(t *testing.T, g *Gateway, lease time.Duration) Hold {
	t.Helper()
	h, err := g.Hold(t.Context(), HoldRequest{Lease: lease, Reason: "the trainer works"})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Sleep(t.Context(), h.ID, 2); err != nil {
		t.Fatal(err)
	}
	if s := g.Status(); s.Asleep != 2 || !s.Held {
		t.Fatalf("status %+v", s)
	}
	return h
}

func TestAHoldNeverEndsWhileEnginesSleep(t *testing.T) {
	t.Parallel()
	d := &sleepers{}
	g := start(t, d.config(), newEngine(t))
	h := holdAsleep(t, g, time.Minute)
	if err := g.Resume("another"); !errors.Is(err, ErrNotHeld) {
		t.Errorf("resuming the hold of another owner: %v", err)
	}
	if s := g.Status(); s.Asleep == 0 || !s.Held {
		t.Error("another owner woke them")
	}
	if err := g.Resume(h.ID); err != nil {
		t.Fatal(err)
	}
	if s := g.Status(); s.Asleep != 0 || s.Held {
		t.Errorf("status %+v", s)
	}
	if got := d.said(); !slices.Equal(got, []string{"sleep 2", "wake"}) {
		t.Errorf("%q", got)
	}
}

//docs:survival.md the sync block dies while inference sleeps
func TestALeaseThatRunsOutWakesTheEngines(t *testing.T) {
	t.Parallel()
	clock := newClock()
	d := &sleepers{}
	c := d.config()
	c.Clock = clock
	g := start(t, c, newEngine(t))
	holdAsleep(t, g, time.Minute)
	clock.advance(2 * time.Minute)
	eventually(t, "the hold to end", func() bool { return !g.Status().Held })
	if s := g.Status(); s.Asleep != 0 {
		t.Errorf("requests go through to engines that sleep: %+v", s)
	}
	if got := d.said(); !slices.Equal(got, []string{"sleep 2", "wake"}) {
		t.Errorf("%q", got)
	}
}

func TestAnUpdateWakesTheEngines(t *testing.T) {
	t.Parallel()
	d := &sleepers{}
	g := start(t, d.config(), newEngine(t))
	h := holdAsleep(t, g, time.Minute)
	if _, err := g.UpdateWeights(t.Context(), WeightUpdate{Weights: sdk.Weights{Version: 1}, Hold: h.ID}); err != nil {
		t.Fatal(err)
	}
	if s := g.Status(); s.Asleep != 0 || !s.Held {
		t.Errorf("status %+v", s)
	}
	if err := g.Resume(h.ID); err != nil {
		t.Fatal(err)
	}
	if got := d.said(); !slices.Equal(got, []string{"sleep 2", "update"}) {
		t.Errorf("%q, want no second waking", got)
	}
}

func TestEnginesThatDoNotWakeAreExcluded(t *testing.T) {
	t.Parallel()
	d := &sleepers{fail: errors.New("out of memory")}
	g := start(t, d.config(), newEngine(t))
	h := holdAsleep(t, g, time.Minute)
	if err := g.Resume(h.ID); err != nil {
		t.Fatal(err)
	}
	s := g.Status()
	if s.Held || s.Replicas[0].Ready || !strings.Contains(s.Replicas[0].Reason, "out of memory") {
		t.Errorf("status %+v", s)
	}
}

func TestSleepIsRefused(t *testing.T) {
	t.Parallel()
	plain := start(t, Config{}, newEngine(t))
	if err := plain.Sleep(t.Context(), "x", 1); !errors.Is(err, ErrNoSleep) {
		t.Errorf("engines that cannot: %v", err)
	}
	c := NewClient(plain.URL(), adminToken)
	defer c.Close()
	if err := c.Sleep(t.Context(), "x", 1); !errors.Is(err, ErrNoSleep) {
		t.Errorf("over HTTP: %v", err)
	}
	var remote *RemoteError
	if err := c.Sleep(t.Context(), "x", 3); !errors.As(err, &remote) || remote.Status != http.StatusBadRequest {
		t.Errorf("level 3: %v", err)
	}
	d := &sleepers{}
	g := start(t, d.config(), newEngine(t))
	if err := g.Sleep(t.Context(), "nobody's", 1); !errors.Is(err, ErrNotHeld) {
		t.Errorf("without a hold: %v", err)
	}
	if got := d.said(); len(got) > 0 {
		t.Errorf("the engine was asked: %q", got)
	}
}
