package run

import (
	"context"
	"encoding/json"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// goal is where the supervisor wants a block to be.
type goal int

const (
	up      goal = iota // running, or done if it is a job
	down                // ended, in its turn
	removed             // ended and no longer part of the run
)

// blockState is the supervisor's picture of one block. Only the supervisor's goroutine touches it.
type blockState struct {
	block    *schema.Block
	config   map[string]json.RawMessage // recordable form, as planned
	devices  []string                   // GPUs, as planned
	goal     goal
	phase    sdk.Phase
	ready    bool // it was ready in this attempt
	attempt  *attempt
	cancel   context.CancelFunc
	attempts int // attempts so far
	adopt    Process
	next     *Placed   // the job of the attempt that is to begin; nil: this machine
	outputs  cty.Value // known outputs; an object, or cty.NilVal
	told     cty.Value // outputs when it was ready the last time: what blocks that refer to it have; NilVal: none have any
	redacted []string  // those of outputs that are unknown, since the record does not have them

	memoryTaken  bool   // it holds all memory of its accelerators whose amount it decides by what is free
	preparing    bool   // it is prepared, and not started yet
	settled      bool   // and was told that nobody does so any more
	unprepared   bool   // it cannot be prepared: that is left to its start
	reason       string // why it is to be stopped
	restart      bool   // start it again once it has ended
	discard      bool   // set aside what it had produced before it is started anew
	resume       bool
	restartTimer *time.Timer // of a restart
	history      []time.Time
	rules        *stopRules
	stopChecks   context.CancelFunc // of an external endpoint
	err          error
	remedy       string
	last         []string
	stopAsked    time.Time
	ruleEnding   string // the stop_when rule that ends it
	activity     activity
}

func (b *blockState) addr() addr.Block { return b.block.Addr }

// over says that the block has ended and will not be started again.
func (b *blockState) over() bool {
	return b.attempt == nil && b.restartTimer == nil && !b.restart && b.phase.Over()
}

// ended says that nothing of the block runs.
func (b *blockState) ended() bool { return b.attempt == nil && b.restartTimer == nil }

func (b *blockState) job() bool { return b.block.Addr.Kind.Life() == kind.Job }

// reached says whether the block is as far as a condition asks.
func (b *blockState) reached(c schema.Condition) bool {
	switch c {
	case schema.Started:
		return b.phase != sdk.Pending && b.phase != sdk.Failed && !inStage(b.phase)
	case schema.Completed:
		return b.phase == sdk.Completed
	default:
		return b.phase == sdk.Ready || b.phase == sdk.Degraded || b.phase == sdk.Completed
	}
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
