package main

import (
	"bytes"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/recipe-rl/recipe/engine/event"
)

// newest finds the events of the newest lines of a log from its end: a log of a million events takes half a minute to
// print.
type newest struct {
	lines  int                    // how many are still to be found
	wanted func(event.Event) bool // passes the filters; asked about several events at a time
	text   func(line []byte) bool // false: the event of a line does not pass them; nil: nothing is known
	prints func(event.Event) bool // has a line
	// phases reports that a phase has no line when the block was in it already, which older events decide
	phases bool
	all    bool // the phases of all blocks are needed: those of more events will be compared with them

	after  uint64         // files whose events have at most this number have none that is wanted
	last   uint64         // number of the newest event, in the end
	seen   atomic.Uint64  // of those that were read
	events []event.Event  // newest first
	open   map[string]int // addresses of phases among them, and the greatest attempt: older ones are needed
	older  map[string]int // index of the newest phase before the lines
}

var errFound = errors.New("found")

// read calls show with the events of the lines, the oldest first, after those phases that decide about their phases.
func (n *newest) read(dir string, show func(event.Event) error) error {
	n.open, n.older = map[string]int{}, map[string]int{}
	err := event.Back(dir, event.Pick{Text: n.concerns, Event: n.chosen, After: n.after}, n.take)
	if err != nil && !errors.Is(err, errFound) {
		return err
	}
	n.last = n.seen.Load()
	for _, e := range slices.Backward(n.events) {
		if err := show(e); err != nil {
			return err
		}
	}
	return nil
}

// concerns reports whether an event is read. Once the lines are found, only phases are.
func (n *newest) concerns(text []byte) bool {
	if n.seen.Load() == 0 {
		return true
	}
	if n.text != nil && !n.text(text) {
		return false
	}
	return n.lines > 0 || bytes.Contains(text, []byte(`"phase"`))
}

// chosen reports whether an event is taken.
func (n *newest) chosen(e event.Event) bool {
	for seen := n.seen.Load(); e.Seq > seen && !n.seen.CompareAndSwap(seen, e.Seq); seen = n.seen.Load() {
	}
	return n.wanted(e)
}

func (n *newest) take(e event.Event) error {
	switch phase := n.phases && e.Type == event.Phase; {
	case phase && n.lines > 0:
		n.events = append(n.events, e)
		n.open[e.Address] = max(n.open[e.Address], e.BlockAttempt)
	case phase:
		n.before(e)
	case n.lines > 0 && n.prints(e):
		n.events = append(n.events, e)
		n.lines--
	}
	if n.lines == 0 && len(n.open) == 0 && !(n.phases && n.all) {
		return errFound
	}
	return nil
}

// before takes a phase from before the lines. Of each block the newest counts, with the greatest attempt of all.
func (n *newest) before(e event.Event) {
	if i, ok := n.older[e.Address]; ok {
		n.events[i].BlockAttempt = max(n.events[i].BlockAttempt, e.BlockAttempt)
	} else {
		n.older[e.Address] = len(n.events)
		n.events = append(n.events, e)
	}
	if attempt, ok := n.open[e.Address]; ok && e.BlockAttempt >= attempt {
		delete(n.open, e.Address)
	}
}
