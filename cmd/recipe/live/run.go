package live

import (
	"time"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/printable"
	"github.com/recipe-rl/recipe/engine/snapshot"
	"github.com/recipe-rl/recipe/sdk"
)

const (
	keptLines = 1000    // of the run, and of each block
	keptText  = 4 << 10 // bytes of the message of a line
)

// run is a run folded from its events: the snapshot, the newest lines of the log and the pace of each job.
type run struct {
	snap  snapshot.Snapshot
	lines map[string]*ring // by address; "" has the lines of all blocks
	paces map[string]*pace
	order []string // of the blocks; nil: they have changed
}

func newRun() *run {
	return &run{lines: map[string]*ring{}, paces: map[string]*pace{}}
}

// apply folds one event. Events come in the order of their numbers.
func (r *run) apply(e event.Event) {
	again := e.Type == event.Phase && r.snap.SamePhase(e)
	// What a ready block does is in the table.
	busy := e.Type == event.Phase && e.Phase == string(sdk.Ready) && r.phase(e.Address) == e.Phase
	r.snap.Apply(e)
	switch e.Type {
	case event.RunStarted:
		clear(r.paces)
	case event.Progress:
		p := r.paces[e.Address]
		if p == nil {
			p = &pace{}
			r.paces[e.Address] = p
		}
		p.add(e.Time, e.Step)
		return
	case event.Removed:
		r.order = nil
		return
	case event.Metrics, event.Weights, event.Sample, event.Span, event.Operation, event.Output:
		return // shown elsewhere, or too often for a line
	}
	if again || e.Level == "debug" || view.Line(view.Style{}, e) == "" {
		return
	}
	e.Message = printable.Limit(e.Message, keptText)
	if !busy {
		r.keep("", e)
	}
	if e.Address != "" {
		r.keep(e.Address, e)
	}
}

func (r *run) phase(address string) string {
	if b := r.snap.Blocks[address]; b != nil {
		return b.Phase
	}
	return ""
}

// addresses lists the blocks in display order.
func (r *run) addresses() []string {
	if len(r.order) != len(r.snap.Blocks) {
		r.order = r.snap.Addresses()
	}
	return r.order
}

func (r *run) keep(address string, e event.Event) {
	if r.lines[address] == nil {
		r.lines[address] = &ring{}
	}
	r.lines[address].add(e)
}

// ring holds the newest keptLines events.
type ring struct {
	list []event.Event
	from int // index of the oldest, once list is full
}

func (r *ring) add(e event.Event) {
	if len(r.list) < keptLines {
		r.list = append(r.list, e)
		return
	}
	r.list[r.from] = e
	r.from = (r.from + 1) % keptLines
}

// last returns at most n events in order, the newest of which is the one skip before the end.
func (r *ring) last(n, skip int) []event.Event {
	if r == nil {
		return nil
	}
	end := len(r.list) - skip
	start := max(end-n, 0)
	var out []event.Event
	for i := start; i < end; i++ {
		out = append(out, r.list[(r.from+i)%len(r.list)])
	}
	return out
}

func (r *ring) len() int {
	if r == nil {
		return 0
	}
	return len(r.list)
}

// pace is the speed of a job over its newest steps.
type pace struct {
	at    []time.Time
	steps []int64
}

const paceSteps = 64

func (p *pace) add(at time.Time, step int64) {
	if n := len(p.steps); n > 0 && step < p.steps[n-1] { // it was resumed from a checkpoint
		p.at, p.steps = nil, nil
	}
	p.at, p.steps = append(p.at, at), append(p.steps, step)
	if len(p.at) > 2*paceSteps {
		p.at, p.steps = append([]time.Time(nil), p.at[paceSteps:]...), append([]int64(nil), p.steps[paceSteps:]...)
	}
}

// left is how long the rest takes at this speed; false when that is unknown.
func (p *pace) left(total int64, now time.Time) (time.Duration, bool) {
	if p == nil || len(p.at) < 2 || total <= 0 {
		return 0, false
	}
	n := len(p.at) - 1
	made, took := p.steps[n]-p.steps[0], p.at[n].Sub(p.at[0])
	if made <= 0 || took <= 0 {
		return 0, false
	}
	rest := time.Duration(float64(took) / float64(made) * float64(total-p.steps[n]))
	return max(0, rest-max(0, now.Sub(p.at[n]))), true
}
