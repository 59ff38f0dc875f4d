package atropos

import (
	"fmt"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/internal/unsent"
	"github.com/recipe-rl/recipe/sdk"
)

// doing is what the processes of the environment do, as their events tell. Atroposlib makes a rollout of one piece,
// so whether it waits for inference or for its own code is seen from the inference block: it knows whether anything
// was asked of it.
type doing struct {
	inference, trajectories string // addresses

	mu        sync.Mutex
	processes map[int]*member
	grouped   time.Time // the last group
	unsent    unsent.Row
}

// member is one process.
type member struct {
	waiting time.Time // since when it waits to register; zero: it has
	workers int64     // rollouts under way
	changed time.Time // when the number of rollouts changed between none and some
	eval    time.Time // since when it evaluates; zero: it does not
}

// take records an event of a process.
func (d *doing) take(index int, e event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	p := d.processes[index]
	if p == nil {
		if d.processes == nil {
			d.processes = map[int]*member{}
		}
		p = &member{changed: now}
		d.processes[index] = p
	}
	switch e.Event {
	case "waiting":
		if p.waiting.IsZero() {
			p.waiting = now
		}
	case "registered":
		p.waiting, p.changed = time.Time{}, now
	case "poll":
		if (e.Workers > 0) != (p.workers > 0) {
			p.changed = now
		}
		p.workers, p.waiting = e.Workers, time.Time{}
	case "evaluating":
		p.eval = now
	case "evaluated", "evaluation-failed":
		p.eval = time.Time{}
	case "group":
		d.group(e, now)
	}
}

func (d *doing) group(e event, now time.Time) {
	d.grouped = now
	why := ""
	switch {
	case e.Same:
		why = unsent.FlatScores
	case e.Long:
		why = unsent.LongSequence
	}
	d.unsent.Add(why, now)
}

// activities are what the block does now.
func (d *doing) activities() []sdk.Activity {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a, ok := d.unsent.Activity(time.Now()); ok {
		return []sdk.Activity{a}
	}
	var rolling, evaluating, idle int64
	var oldestRoll, oldestEval, oldestIdle, oldestWait time.Time
	for _, p := range d.processes {
		switch {
		case !p.eval.IsZero():
			evaluating++
			oldestEval = earlier(oldestEval, p.eval)
		case !p.waiting.IsZero():
			oldestWait = earlier(oldestWait, p.waiting)
		case p.workers > 0:
			rolling += p.workers
			oldestRoll = earlier(oldestRoll, p.changed)
		default:
			idle++
			oldestIdle = earlier(oldestIdle, p.changed)
		}
	}
	var out []sdk.Activity
	if !oldestWait.IsZero() {
		out = append(out, sdk.Activity{On: d.trajectories, What: "a trainer to register", Began: oldestWait})
	}
	if rolling > 0 {
		out = append(
			out,
			sdk.Activity{
				On:         d.inference,
				What:       fmt.Sprintf("%d rollouts", rolling),
				Sign:       "group",
				Began:      oldestRoll,
				Progressed: d.grouped,
				Remedy:     "look at its log; recipe status --why --stacks shows where its code is",
			},
		)
	}
	if evaluating > 0 {
		out = append(
			out,
			sdk.Activity{On: d.inference, What: "an evaluation", Began: oldestEval, Patience: 5 * time.Minute},
		)
	}
	if idle > 0 && len(out) == 0 {
		out = append(out, sdk.Activity{On: d.trajectories, What: "the trainer to take what is posted", Began: oldestIdle})
	}
	return out
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
