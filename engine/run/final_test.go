package run_test

import (
	"errors"
	"testing"

	"github.com/recipe-rl/recipe/engine/run"
	blockevent "github.com/recipe-rl/recipe/internal/event"
	"github.com/recipe-rl/recipe/sdk"
)

// A failure that another attempt would have likewise ends a block that was ready, without a restart.
func TestAFinalFailureIsNotRetried(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.host.scripts[env] = func(p *fakeProcess) {
		p.ready("")
		p.emit(blockevent.PhaseChange{Phase: sdk.Failed, Message: "rewards.py:3: KeyError", Remedy: "correct line 3",
			Final: true})
	}
	a := f.apply(f.load(wholeLoop)).wait()
	var failure *run.Failure
	if !errors.As(a.err, &failure) || failure.Remedy != "correct line 3" {
		t.Fatalf("the run ended with %v", a.err)
	}
	if starts := f.host.startsOf(env); len(starts) != 1 {
		t.Errorf("it was started %d times", len(starts))
	}
}
