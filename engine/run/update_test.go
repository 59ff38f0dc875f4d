package run_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
)

// steps is how many steps the event log knows of.
func (f *fixture) steps() (n int) {
	for _, e := range f.events() {
		if e.Type == event.Metrics {
			n++
		}
	}
	return n
}

// A trainer applies new values between two steps, and a step may be long: until then the engine follows the block as
// before, and the values are recorded when they are applied.
func TestABlockIsFollowedWhileItAppliesAnUpdate(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[trainer] = job(100_000, 5*time.Millisecond)
	began, applied := make(chan struct{}), make(chan struct{})
	f.host.update = func(ctx context.Context) error {
		close(began)
		select {
		case <-applied:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	a := f.apply(f.load(wholeLoop))
	f.until("it is at a step", func() bool { return f.steps() > 0 })
	a.converge(strings.Replace(wholeLoop, `trainer "x" "t" {`, "trainer \"x\" \"t\" {\n  steps = 7", 1))
	<-began
	recorded := func() bool { return string(f.recordedBlock(trainer).Config["steps"]) == "7" }
	from := f.steps()
	f.until("steps are followed", func() bool { return f.steps() > from+20 })
	if recorded() {
		t.Error("the values are recorded before the block has applied them")
	}
	close(applied)
	f.until("the values are recorded", recorded)
	if err := a.engine.Stop(t.Context(), "enough"); err != nil {
		t.Fatal(err)
	}
	a.wait()
}

// A stop does not wait for an update that a block has not answered.
func TestAStopDoesNotWaitForAnUpdate(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[trainer] = job(100_000, 5*time.Millisecond)
	began := make(chan struct{})
	f.host.update = func(ctx context.Context) error {
		close(began)
		<-ctx.Done()
		return ctx.Err()
	}
	a := f.apply(f.load(wholeLoop))
	f.until("it is at a step", func() bool { return f.steps() > 0 })
	a.converge(strings.Replace(wholeLoop, `trainer "x" "t" {`, "trainer \"x\" \"t\" {\n  steps = 7", 1))
	<-began
	if err := a.engine.Stop(t.Context(), "enough"); err != nil {
		t.Fatal(err)
	}
	a.wait()
	if alive := f.host.alive(); len(alive) > 0 {
		t.Errorf("still alive: %v", alive)
	}
}
