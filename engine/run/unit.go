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

// goal is where the conductor wants a block to be.
type goal int

const (
	up   goal = iota // running, or done if it is a job
	down             // ended, in its turn
	gone             // ended and no longer part of the run
)

// unit is the conductor's picture of one block. Only the conductor's goroutine touches it.
type unit struct {
	block   *schema.Block
	config  map[string]json.RawMessage // recordable form, as planned
	devices []string                   // GPUs, as planned
	goal    goal
	phase   sdk.Phase
	ready   bool // it was ready in this life
	life    *life
	cancel  context.CancelFunc
	number  int // lives so far
	adopt   Process
	outputs cty.Value // known outputs; an object, or cty.NilVal

	why        string // why it is to be stopped
	again      bool   // start it anew once it has ended
	fresh      bool   // set aside what it had produced before it is started anew
	resume     bool
	waiting    *time.Timer // of a restart
	history    []time.Time
	rules      *stopRules
	checks     context.CancelFunc // of an external endpoint
	err        error
	remedy     string
	last       []string
	stopAsked  time.Time
	ruleEnding string // the stop_when rule that ends it
	doing      doing
}

func (u *unit) addr() addr.Block { return u.block.Addr }

// over says that the block has ended and will not be started again.
func (u *unit) over() bool {
	return u.life == nil && u.waiting == nil && !u.again && u.phase.Over()
}

// ended says that nothing of the block runs.
func (u *unit) ended() bool { return u.life == nil && u.waiting == nil }

func (u *unit) job() bool { return u.block.Addr.Kind.Life() == kind.Job }

// reached says whether the block is as far as a condition asks.
func (u *unit) reached(c schema.Condition) bool {
	switch c {
	case schema.Started:
		return u.phase != sdk.Pending && u.phase != sdk.Failed
	case schema.Completed:
		return u.phase == sdk.Completed
	default:
		return u.phase == sdk.Ready || u.phase == sdk.Degraded || u.phase == sdk.Completed
	}
}

// lifeReport carries a life's reports into the conductor's goroutine.
type lifeReport struct {
	e *Engine
	u addr.Block
	n int
}

func (r lifeReport) send(fn func(*conductor, *unit)) {
	r.e.do(func(c *conductor) {
		if u := c.units[r.u]; u != nil && u.number == r.n {
			fn(c, u)
		}
	})
}

func (r lifeReport) phase(p sdk.Phase, outputs cty.Value) {
	r.send(func(c *conductor, u *unit) { c.phase(u, p, outputs) })
}

func (r lifeReport) progress(ev event.Event) {
	r.send(func(c *conductor, u *unit) { c.progress(u, ev) })
}

func (r lifeReport) answered(st host.Status, err error) {
	r.send(func(c *conductor, u *unit) { u.doing.answered(c.e.now(), st, err) })
}

func (r lifeReport) said(message string) {
	r.send(func(c *conductor, u *unit) { u.doing.message, u.doing.sign = message, c.e.now() })
}

func (r lifeReport) ended(end ending) {
	r.send(func(c *conductor, u *unit) { c.ended(u, end) })
}
