package run

import (
	"context"
	"encoding/json"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/run/lifecycle"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// blockState is the supervisor's picture of one block. Only the supervisor's goroutine touches it.
type blockState struct {
	lifecycle.State // set when the block is added, changed by supervisor.move alone

	block    *schema.Block
	config   map[string]json.RawMessage // recordable form, as planned
	devices  []string                   // GPUs, as planned
	attempt  *attempt                   // while it has a process
	cancel   context.CancelFunc         // of the attempt
	attempts int                        // attempts so far
	adopt    Process
	next     *Placed   // the job of the attempt that is to begin; nil: this machine
	outputs  cty.Value // known outputs; an object, or cty.NilVal
	told     cty.Value // outputs when it was ready the last time: what blocks that refer to it have; NilVal: none have any
	redacted []string  // those of outputs that are unknown, since the record does not have them

	memoryTaken  bool        // it holds all memory of its accelerators whose amount it decides by what is free
	unprepared   bool        // it cannot be prepared: that is left to its start
	reason       string      // why it is to be stopped
	restartTimer *time.Timer // while it is delayed
	history      []time.Time
	rules        *stopRules
	stopChecks   context.CancelFunc // while it is an external server that is checked
	err          error
	remedy       string
	last         []string
	stopOrdered  time.Time // while it is stopping
	ruleEnding   string    // the stop_when rule that ends it
	activity     activity
}

func (b *blockState) addr() addr.Block { return b.block.Addr }

func (b *blockState) job() bool { return b.block.Addr.Kind.Life() == kind.Job }

// reached reports whether the block is as far as a condition asks.
func (b *blockState) reached(c schema.Condition) bool {
	switch c {
	case schema.Started:
		return b.Phase != sdk.Pending && b.Phase != sdk.Failed && !inStage(b.Phase)
	case schema.Completed:
		return b.Phase == sdk.Completed
	default:
		return b.Phase == sdk.Ready || b.Phase == sdk.Degraded || b.Phase == sdk.Completed
	}
}

// move changes the state of a block. It ends the timer or the checks that the new state does not have, and drops what
// the block has produced when it is to begin from scratch. It returns false when the trigger has no meaning in the
// state of the block, which then stays as it is.
func (s *supervisor) move(b *blockState, t lifecycle.Trigger) bool {
	was := b.State
	next, ok := lifecycle.Next(was, t)
	if !ok {
		return false
	}
	b.State = next
	s.dirty = s.dirty || next != was
	if next.Stage != lifecycle.Delayed && b.restartTimer != nil {
		b.restartTimer.Stop()
		b.restartTimer = nil
	}
	if next.Stage != lifecycle.Checked && b.stopChecks != nil {
		b.stopChecks()
		b.stopChecks = nil
	}
	anew := func(s lifecycle.State) bool { return s.MayBegin() && s.From == lifecycle.Scratch }
	if anew(next) && !anew(was) {
		s.forgetProduct(b)
	}
	return true
}

// attemptReport carries an attempt's reports into the supervisor's goroutine.
type attemptReport struct {
	e       *Engine
	block   addr.Block
	attempt int
}

func (r attemptReport) send(fn func(*supervisor, *blockState)) {
	r.e.do(func(s *supervisor) {
		if b := s.blocks[r.block]; b != nil && b.attempts == r.attempt {
			fn(s, b)
		}
	})
}

func (r attemptReport) phase(p sdk.Phase, outputs cty.Value) {
	r.send(func(s *supervisor, b *blockState) { s.phase(b, p, outputs) })
}

func (r attemptReport) memoryTaken(taken bool) {
	r.send(func(s *supervisor, b *blockState) { b.memoryTaken, s.dirty = taken, true })
}

func (r attemptReport) progress(ev event.Event) {
	r.send(func(s *supervisor, b *blockState) { s.progress(b, ev) })
}

func (r attemptReport) status(st host.Status, err error) {
	r.send(func(s *supervisor, b *blockState) {
		b.activity.answered(s.e.now(), st, err)
		s.recordActivity(b)
	})
}

func (r attemptReport) message(message string) {
	r.send(func(s *supervisor, b *blockState) { b.activity.message, b.activity.lastReport = message, s.e.now() })
}

func (r attemptReport) ended(end ending) {
	r.send(func(s *supervisor, b *blockState) { s.ended(b, end) })
}
