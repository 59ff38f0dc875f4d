package run_test

import (
	"context"
	"testing"

	"github.com/recipe-rl/recipe/engine/state"
)

// While a run is being stopped, the engine names the blocks that it waits for and when it kills them.
func TestAStopNamesWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	finish := make(chan struct{})
	f.host.scripts[trainer] = func(p *fakeProcess) {
		p.ready("running")
		<-p.stopping
		<-finish
		p.say("stopped", "", "")
	}
	a := f.apply(f.load(wholeLoop))
	f.until("the trainer runs", func() bool { rec := f.recordedBlock(trainer); return rec != nil && rec.Phase == "ready" })
	if e, err := a.engine.Ending(t.Context()); err != nil || e != nil {
		t.Fatalf("a run that goes on ends: %+v %v", e, err)
	}
	if err := a.engine.Stop(context.Background(), "enough"); err != nil {
		t.Fatal(err)
	}
	f.until("only the trainer is open", func() bool {
		e, err := a.engine.Ending(t.Context())
		if err != nil || e == nil || e.Status != state.Stopped || e.Why != "enough" {
			t.Fatalf("the end is %+v, %v", e, err)
		}
		if len(e.Stopping) != 1 || e.Stopping[0].Address.String() != trainer {
			return false
		}
		if !e.Stopping[0].Killed.After(e.Stopping[0].Asked) {
			t.Errorf("it is killed before it was asked to stop: %+v", e.Stopping[0])
		}
		return true
	})
	close(finish)
	a.wait()
}
