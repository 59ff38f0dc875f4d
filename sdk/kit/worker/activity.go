package worker

import (
	"fmt"
	"time"

	"github.com/recipe-rl/recipe/sdk"
)

// patienceForFirst is how long the first step of a life may take without an event: kernels are compiled and memory is
// taken.
const patienceForFirst = 15 * time.Minute

// patienceForPeople is longer than any run.
const patienceForPeople = 10 * 365 * 24 * time.Hour

// doing is what the worker does, as its phases tell.
type doing struct {
	now     *sdk.Ongoing
	since   time.Time     // of a training step under way; zero: there is none
	longest time.Duration // training step so far
}

// enter reports the worker's new phase. Waiting for inference to serve its weights and for its turn on the
// GPU are reported by the host itself.
func (t *Trainer[C]) enter(d *doing, e event) {
	d.now.End()
	d.now = nil
	if !d.since.IsZero() {
		d.longest, d.since = max(d.longest, time.Since(d.since)), time.Time{}
	}
	if a, ok := t.activity(d, e); ok {
		d.now = t.host.Begin(a)
	}
}

func (t *Trainer[C]) activity(d *doing, e event) (sdk.Activity, bool) {
	queue := ""
	if t.program.Trajectories != nil {
		queue = t.program.Trajectories.Address
	}
	switch e.Phase {
	case "starting", "loading", "prepared", "sync", "turn":
		return sdk.Activity{}, false
	case "done", "ended": // freeing memory can take long
		return sdk.Activity{What: "the end of its program", Patience: patienceForFirst / 3}, true
	case "settling": // training goes on ahead of inference, and has come to where it must not
		a := sdk.Activity{What: fmt.Sprintf("its weights of step %d to be served", e.Step)}
		if by := t.req.SyncedBy; len(by) > 0 {
			a.On = by[0]
		}
		return a, true
	case "connecting":
		return sdk.Activity{On: queue, What: "it to register this trainer"}, true
	case "waiting":
		return sdk.Activity{On: queue, What: fmt.Sprintf("batch %d", e.Step+1)}, true
	case "paused":
		return sdk.Activity{What: "the run is paused", Patience: patienceForPeople, Remedy: "recipe resume", Rest: true}, true
	case "no_room": // starting it again would not help
		return sdk.Activity{What: e.ForWhat, Patience: patienceForPeople,
			Remedy: "make room on that disk, or make it writable"}, true
	case "training":
		a := sdk.Activity{What: fmt.Sprintf("training step %d", e.Step+1), Patience: max(patienceForFirst/3, 3*d.longest)}
		if d.longest == 0 {
			a.Patience = patienceForFirst
		}
		if n := t.gpus(); n > 1 {
			a.Detail = fmt.Sprintf("on %d ranks, which wait for each other", n)
		}
		d.since = time.Now()
		return a, true
	}
	return sdk.Activity{What: e.Phase + " at step " + fmt.Sprint(e.Step), Patience: patienceForFirst / 3}, true
}
