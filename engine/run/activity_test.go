package run_test

import (
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/sdk"
)

// What a block does is written when it changes, and not at each question.
func TestActivitiesAreRecordedWhenTheyChange(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	f := newFixture(t)
	began := time.Now()
	f.now = func() time.Time { return began.Add(50 * time.Since(began)) } // the gap between two events passes quickly
	f.host.scripts[trainer] = does(sdk.Activity{On: inf, What: "batch 1"})
	f.host.scripts[inf] = does(
		sdk.Activity{On: "sync.x.y", What: "2 requests"}, sdk.Activity{What: "3 requests at its engine"})
	a := f.apply(f.load(strings.ReplaceAll(wholeLoop, `model = "m"`,
		"model = \"m\"\n health {\n interval = \"100ms\"\n }\n")))
	of := func(address string) (found []event.Event) {
		for _, e := range f.events() {
			if e.Type == event.Activity && e.Address == address {
				found = append(found, e)
			}
		}
		return found
	}
	f.until("the engine has asked", func() bool { return len(of(trainer)) > 0 && len(of(inf)) > 0 })
	if e := of(inf)[0]; e.State != event.Working || e.Message != "3 requests at its engine" || e.On != "" ||
		e.Seconds < 500 {
		t.Errorf("the block that samples: %+v", e)
	}
	if e := of(trainer)[0]; e.State != event.Waiting || e.On != inf || e.BlockAttempt != 1 {
		t.Errorf("the trainer: %+v", e)
	}
	set := func(address, what string) {
		p := f.host.process(address)
		p.mu.Lock()
		p.doing = []sdk.Activity{{What: what, Began: time.Now()}}
		p.mu.Unlock()
	}
	set(inf, "4 requests at its engine")
	set(trainer, "training step 1")
	f.until("the trainer's change is written", func() bool { return len(of(trainer)) == 2 })
	if e := of(trainer)[1]; e.State != event.Working || e.Message != "training step 1" {
		t.Errorf("then the trainer: %+v", e)
	}
	if err := a.engine.Stop(t.Context(), "enough"); err != nil {
		t.Fatal(err)
	}
	a.wait()
	if n := len(of(inf)); n != 1 {
		t.Errorf("another number of requests is another activity: %d events", n)
	}
}

// The machine is sampled while a run lasts.
func TestTheMachineIsRecorded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.usage = 20 * time.Millisecond
	f.host.scripts[trainer] = does(sdk.Activity{What: "training step 1"})
	a := f.apply(f.load(wholeLoop))
	samples := func() (n int) {
		for _, e := range f.events() {
			if e.Type == event.Machine && e.Metrics["memory_bytes"] > e.Metrics["memory_used_bytes"] {
				n++
			}
		}
		return n
	}
	f.until("the machine is sampled", func() bool { return samples() > 1 })
	if err := a.engine.Stop(t.Context(), "enough"); err != nil {
		t.Fatal(err)
	}
	a.wait()
}
