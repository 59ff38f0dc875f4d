package run_test

import (
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema/addr"
)

// A block whose process is suspended is shown as silent within seconds, and no longer once it answers.
//
//docs:survival.md a plugin is suspended (SIGSTOP) or hangs
func TestASuspendedBlockIsSilent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	finish := make(chan struct{})
	f.host.scripts[trainer] = func(p *fakeProcess) { p.ready("running"); <-finish; p.say("completed", "", "") }
	health := "health {\n interval = \"100ms\"\n timeout = \"2s\"\n }\n"
	a := f.apply(f.load(strings.Replace(wholeLoop, `model = "m"`, "model = \"m\"\n"+health, 1)))
	f.until("the trainer runs", func() bool { rec := f.recordedBlock(trainer); return rec != nil && rec.Phase == "ready" })
	p, again := f.host.process(inf), make(chan struct{})
	p.mu.Lock()
	p.suspended = again
	p.mu.Unlock()
	reported := func(what event.Type) func() bool {
		return func() bool {
			for _, e := range f.events() {
				if e.Type == what && e.Address == inf {
					return true
				}
			}
			return false
		}
	}
	f.until("it is silent", reported(event.Silent))
	close(again)
	f.until("it answers", reported(event.Answers))
	close(finish)
	if a.wait(); a.err != nil {
		t.Fatal(a.err)
	}
}

// The time of stop_when counts from the start of a trainer, also when the next engine adopts it.
func TestWallTimeGoesOnAtAdoption(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	src := strings.Replace(wholeLoop, "environments = [environment.x.e]\n",
		"environments = [environment.x.e]\n stop_when {\n wall = \"1h\"\n }\n", 1)
	f.orphan(trainer, src, func(p *fakeProcess) { p.ready("running"); <-p.stopping; p.say("stopped", "", "") })
	store, err := state.OpenStore(f.dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := addr.Parse(trainer)
	if err != nil {
		t.Fatal(err)
	}
	store.NoteBlock(a, func(rec *state.Block) { rec.Started = time.Now().Add(-2 * time.Hour) })
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if a := f.apply(f.load(src)).wait(); a.err != nil || f.record().Status != state.Completed {
		t.Errorf("the run is %s: %v", f.record().Status, a.err)
	}
}
