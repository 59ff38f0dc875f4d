package run_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/run"
)

// TestABlockOnAMachineThatCannotBeReachedIsWaitedFor, but not for longer than its agent looks for an engine.
func TestABlockOnAMachineThatCannotBeReachedIsWaitedFor(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[trainer] = job(100000, time.Millisecond)
	a := f.apply(f.load(strings.Replace(wholeLoop, `model = "m"`,
		"model = \"m\"\n health {\n interval = \"100ms\"\n failures = 2\n }\n restart { delay = \"1ms\" }\n", 1)))
	f.until("inference is ready", func() bool { return len(f.host.startsOf(trainer)) == 1 })
	p := f.host.process(inf)
	set := func(hung bool, cut time.Time) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.hung, p.cut = hung, cut
	}
	asked := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.asked
	}
	noticed := func(text string) bool {
		return slices.ContainsFunc(f.events(), func(e event.Event) bool { return strings.Contains(e.Message, text) })
	}
	set(true, time.Now())
	f.until("the cut is noticed", func() bool { return noticed("cannot be reached since") })
	before := asked()
	f.until("more health checks have failed than may", func() bool { return asked() > before+5 })
	if n := len(f.host.startsOf(inf)); n != 1 {
		t.Errorf("the block was started %d times although its machine could not be reached", n)
	}
	set(false, time.Time{})
	f.until("it is reached again", func() bool { return noticed("is reached again") })
	set(true, time.Now().Add(-run.DefaultLease))
	f.until("it is started again", func() bool { return len(f.host.startsOf(inf)) == 2 })
	_ = a.engine.Kill(context.Background())
	a.wait()
}
