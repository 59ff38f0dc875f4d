package snapshot

import (
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
)

func TestTimeLeft(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const trainer = "trainer.tiny.policy"
	var snap Snapshot
	at := func(second int, e event.Event) {
		e.Address, e.Time = trainer, began.Add(time.Duration(second)*time.Second)
		snap.Apply(e)
	}
	step := func(second, step int) {
		at(second, event.Event{Type: event.Progress, Step: int64(step), Total: 600, Unit: "steps"})
	}
	left := func(second int, want time.Duration, known bool) {
		t.Helper()
		got, ok := snap.TimeLeft(snap.Blocks[trainer], began.Add(time.Duration(second)*time.Second))
		if got != want || ok != known {
			t.Errorf("after %d s %v are left, %v; want %v, %v", second, got, ok, want, known)
		}
	}
	at(0, event.Event{Type: event.Phase, Phase: "ready"})
	left(0, 0, false) // nothing is known of a block that has not reported
	for i := range 500 {
		step(i, i)
	}
	left(499, 101*time.Second, true)
	left(1000, 0, true)
	step(600, 100) // resumed from a checkpoint: the pace before no longer counts
	left(600, 0, false)
	step(602, 101)
	left(602, 998*time.Second, true)

	snap.Apply(event.Event{Type: event.Paused, Time: began.Add(603 * time.Second)})
	left(700, 0, false)
	snap.Apply(event.Event{Type: event.Resumed, Time: began.Add(1000 * time.Second)})
	left(1000, 0, false)
	step(1010, 102)
	step(1011, 103)
	left(1011, 497*time.Second, true)
	step(1012, 600)
	left(1012, 0, false)
}
