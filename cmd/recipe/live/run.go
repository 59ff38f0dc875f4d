package live

import (
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

// run is a run folded from its events: the snapshot and the newest lines of the log.
type run struct {
	snap  snapshot.Snapshot
	lines map[string]*ring // by address; "" has the lines of all blocks
	order []string         // of the blocks; nil: they have changed
}

func newRun() *run {
	return &run{lines: map[string]*ring{}}
}

// apply folds one event. Events come in the order of their numbers.
func (r *run) apply(e event.Event) {
	again := e.Type == event.Phase && r.snap.SamePhase(e)
	// What a ready block does is in the table.
	busy := e.Type == event.Phase && e.Phase == string(sdk.Ready) && r.phase(e.Address) == e.Phase
	r.snap.Apply(e)
	switch e.Type {
	case event.Progress:
		return
	case event.Removed, event.Moved:
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
