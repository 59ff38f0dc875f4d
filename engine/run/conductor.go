package run

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
)

// conductor owns the picture of the run. Everything that changes it is a function run in its goroutine.
type conductor struct {
	e      *Engine
	ctx    context.Context // of all lives
	recipe *schema.Recipe
	units  map[addr.Block]*unit
	values map[addr.Block]cty.Value // outputs of every unit that has some
	ending *endOfRun
	dirty  bool    // something that may allow or forbid a start has changed
	order  []*unit // by address; nil after one came or went

	tick      <-chan time.Time
	cancelled <-chan struct{} // nil once that was seen
	killed    bool
	stalls    stalls
}

// endOfRun is why the run ends.
type endOfRun struct {
	status state.Status
	err    error
	why    string
	// unclean are the blocks that were not stopped in order.
	unclean []*Failure
}

// Failure is the error of a run that ended because a block failed for good.
type Failure struct {
	Address addr.Block
	Err     error
	Remedy  string
	Last    []string // the last lines of its log
}

func (f *Failure) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s failed: %v", f.Address, f.Err)
	for _, l := range f.Last {
		fmt.Fprintf(&b, "\n  │ %s", l)
	}
	if f.Remedy != "" {
		fmt.Fprintf(&b, "\n%s", f.Remedy)
	}
	return b.String()
}

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// do runs fn in the conductor's goroutine. It does nothing once the run is over.
func (e *Engine) do(fn func(*conductor)) {
	select {
	case e.inbox <- fn:
	case <-e.done:
	}
}

// Apply executes a plan and stays until the run is over: jobs done, a block failed for good, or stopped through Stop.
// The error of a failed run is a *Failure. Cancelling ctx kills everything at once; use Stop to drain.
func (e *Engine) Apply(ctx context.Context, recipe *schema.Recipe, p *plan.Plan) (map[string]any, error) {
	first := false
	e.begun.Do(func() { first = true })
	if !first {
		return nil, errors.New("an engine applies one plan; a second one goes through Converge")
	}
	defer close(e.done)
	lives, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	c := &conductor{e: e, ctx: lives, recipe: recipe, units: map[addr.Block]*unit{}, values: map[addr.Block]cty.Value{}}
	if err := c.open(p); err != nil {
		return nil, err
	}
	c.take(p)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	c.tick, c.cancelled = tick.C, ctx.Done()
	for !c.finished() {
		if c.dirty {
			c.step()
		}
		c.next()
	}
	return c.close()
}

// stepTime is how long reports are taken, or blocks started, before it is seen to whatever else waits: orders above all.
const stepTime = 20 * time.Millisecond

// next waits for something to happen and does what follows from it alone. Orders go before reports, and reports that wait already are
// taken together: what they allow and forbid is then looked at once.
func (c *conductor) next() {
	if c.dirty { // there is more to start
		c.reports(time.Now().Add(stepTime))
		return
	}
	select {
	case fn := <-c.e.orders:
		fn(c)
	case fn := <-c.e.inbox:
		fn(c)
		c.reports(time.Now().Add(stepTime))
	case <-c.tick:
		c.clock()
	case <-c.cancelled:
		c.kill()
	}
}

// reports takes what waits now, until a moment.
func (c *conductor) reports(until time.Time) {
	for time.Now().Before(until) {
		select {
		case fn := <-c.e.orders:
			fn(c)
			continue
		case <-c.cancelled:
			c.kill()
			continue
		default:
		}
		select {
		case fn := <-c.e.inbox:
			fn(c)
		default:
			return
		}
	}
}

// kill ends the run and every process of it at once.
func (c *conductor) kill() {
	c.cancelled, c.killed = nil, true
	c.end(state.Stopped, nil, "killed")
	c.killAll()
}

// open records that this engine works on the run.
func (c *conductor) open(p *plan.Plan) error {
	e := c.e
	c.e.append(event.Event{Type: event.RunStarted, Digest: p.Digest, Message: e.opts.Command})
	e.store.Note(func(r *state.Run) {
		r.Recipe, r.File, r.Digest, r.Status, r.Error = e.opts.Name, e.opts.File, p.Digest, state.Running, ""
		r.Ended = time.Time{}
		if r.Started.IsZero() {
			r.Started = e.now().UTC()
		}
		r.Engine = engineRecord(e)
	})
	return e.store.Sync() // with no room for this there is none for what would follow
}

// remove takes a block that has ended out of the run. Its events stay in the log.
func (c *conductor) remove(a addr.Block) {
	c.e.store.Remove(a)
	c.e.append(event.Event{Type: event.Removed, Address: a.String()})
}

// forget takes blocks out of the run that ended earlier and are no longer declared. A plan for a part of the recipe decides about that
// part only.
func (c *conductor) forget(p *plan.Plan) {
	planned := make(map[addr.Block]bool, len(p.Operations))
	for _, op := range p.Operations {
		planned[op.Address] = true
	}
	for _, b := range c.recipe.Blocks {
		if !planned[b.Addr] {
			return
		}
	}
	for a := range c.e.store.Run().Blocks {
		if c.units[a] == nil {
			c.remove(a)
		}
	}
}

// take makes units of a plan's operations, or changes those that are there.
func (c *conductor) take(p *plan.Plan) {
	for _, op := range p.Operations {
		if op.Action != plan.Nothing {
			c.e.append(event.Event{Type: event.Operation, Address: op.Address.String(), Action: string(op.Action), Message: firstReason(op)})
		}
		if u := c.units[op.Address]; u != nil {
			c.change(u, op)
			continue
		}
		c.add(op)
	}
	c.forget(p)
	c.dirty = true
}

func firstReason(op *plan.Operation) string {
	if len(op.Reasons) == 0 {
		return ""
	}
	return op.Reasons[0].Text
}

// add makes a unit for a block that this engine does not know yet: new, recorded, or found alive.
func (c *conductor) add(op *plan.Operation) {
	rec := c.e.store.Block(op.Address)
	u := &unit{block: op.Block, config: op.Config, devices: op.Devices, phase: sdk.Pending}
	if u.block == nil { // to be stopped: no longer declared
		u.block, u.goal, u.why = &schema.Block{Addr: op.Address, Schema: c.e.schemaOf(op.Address)}, gone, "it is no longer declared"
	}
	if rec != nil {
		u.number, u.history = rec.Life, rec.Restarts
	}
	c.units[op.Address], c.order = u, nil
	if proc := c.e.found[op.Address]; proc != nil {
		delete(c.e.found, op.Address)
		u.adopt = proc
	}
	switch op.Action {
	case plan.Nothing:
		if u.adopt == nil {
			c.recall(u, rec)
		}
	case plan.Update:
		c.adopt(u)
		c.sendUpdate(u)
		return
	case plan.Resume, plan.Restart, plan.Replace:
		u.resume, u.fresh = op.Action != plan.Replace, op.Action == plan.Replace
		if u.adopt != nil {
			u.again, u.why = true, firstReason(op)
		} else if u.fresh {
			c.forgetProduct(u)
		}
	case plan.Create:
		u.resume = false
	case plan.Stop:
	}
	if u.adopt != nil {
		c.adopt(u)
	} else if u.goal == gone {
		u.phase = sdk.Stopped
		c.sweep(u.addr())
	}
}

// sweep ends what the dead process of a block has left behind, when the block is not started again, which would do it.
func (c *conductor) sweep(a addr.Block) {
	ctx, cancel := context.WithTimeout(c.ctx, 20*time.Second)
	defer cancel()
	if err := c.e.opts.Host.Sweep(ctx, c.e.opts.Dir.Block(a)); err != nil {
		c.e.notice("error", fmt.Sprintf("%s: ending what it has left behind: %v", a, err))
	}
}

// recall gives a settled block the phase and outputs that are recorded of it.
func (c *conductor) recall(u *unit, rec *state.Block) {
	if rec == nil {
		return
	}
	u.phase = sdk.Phase(rec.Phase)
	if !u.phase.Over() && !rec.External {
		u.phase = sdk.Stopped
	}
	c.gives(u, recordedOutputs(rec.Outputs, u.block.Schema))
	if rec.External {
		u.phase = sdk.Pending
	}
}

// change applies an operation of a second plan to a block that this engine already runs.
func (c *conductor) change(u *unit, op *plan.Operation) {
	if op.Block != nil {
		u.block, u.config, u.devices = op.Block, op.Config, op.Devices
	}
	switch op.Action {
	case plan.Nothing, plan.Update:
		switch {
		case u.goal == gone: // declared again while it still ends; when it was told so already, it comes back
			u.goal, u.again, u.resume = up, !u.stopAsked.IsZero(), true
		case op.Action == plan.Update:
			c.sendUpdate(u)
		}
	case plan.Stop:
		u.goal, u.why = gone, "it is no longer declared"
	default:
		u.goal, u.again, u.why = up, true, firstReason(op)
		u.resume, u.fresh = op.Action != plan.Replace, op.Action == plan.Replace
		u.err = nil
	}
}

// step starts what may start, stops what may stop, and sees whether the run is over.
func (c *conductor) step() {
	c.dirty = false
	if c.ending == nil {
		c.settle()
	}
	until := time.Now().Add(stepTime)
	for _, u := range c.sorted() {
		switch {
		case u.goal != up || u.again:
			c.stopInTurn(u)
		case c.ending == nil && u.ended() && u.phase == sdk.Pending && c.allowed(u):
			if time.Now().After(until) {
				c.dirty = true // the others after orders and reports
				return
			}
			c.start(u)
		}
	}
}

// settle ends the run when its jobs are done, or when a block has failed for good.
func (c *conductor) settle() {
	jobs, open := 0, 0
	for _, u := range c.sorted() {
		if u.err != nil && u.phase == sdk.Failed && u.ended() && restartPolicy(u.block.Meta.Restart).Mode != "ignore" {
			c.end(state.Failed, &Failure{Address: u.addr(), Err: u.err, Remedy: u.remedy, Last: u.last}, u.err.Error())
			return
		}
		if u.job() && u.goal == up {
			jobs++
			if !u.over() {
				open++
			}
		}
	}
	if jobs > 0 && open == 0 && !c.e.opts.Keep {
		c.end(state.Completed, nil, "every job is done")
	}
}

// end begins the end of the run: everything is to go down, dependents first.
func (c *conductor) end(status state.Status, err error, why string) {
	if c.ending != nil {
		return
	}
	c.lastWords(status)
	c.ending = &endOfRun{status: status, err: err, why: why}
	for _, u := range c.units {
		if u.goal == up {
			u.goal, u.why, u.again = down, why, false
		}
		if u.waiting != nil {
			u.waiting.Stop()
			u.waiting, u.phase = nil, sdk.Stopped
		}
	}
	c.dirty = true
}

// finished says that the run is ending and nothing runs any more.
func (c *conductor) finished() bool {
	if c.ending == nil {
		return false
	}
	for _, u := range c.units {
		if u.life != nil {
			return false
		}
	}
	return true
}

// allowed says whether everything that a block needs is far enough.
func (c *conductor) allowed(u *unit) bool {
	for _, n := range u.block.Needs {
		on := c.units[n.On]
		if on == nil || on.again || !on.reached(n.Condition) {
			return false
		}
	}
	return true
}

// stopInTurn stops a block once nothing that needs it runs any more.
func (c *conductor) stopInTurn(u *unit) {
	if u.checks != nil && (u.goal != up || u.again) {
		u.checks()
		u.checks, u.phase = nil, sdk.Stopped
	}
	if u.life == nil {
		c.stopped(u)
		return
	}
	if !u.stopAsked.IsZero() {
		return
	}
	// A block that is only restarted leaves its dependents running: they hold or retry. One that is replaced does not.
	if u.goal != up || u.fresh {
		for _, d := range c.units {
			if d.life != nil && d != u && (d.goal != up || d.again) && needs(d, u.addr()) {
				return
			}
		}
	}
	u.stopAsked = c.e.now()
	u.life.stop <- stopOrder{reason: u.why}
}

func needs(d *unit, on addr.Block) bool {
	for _, n := range d.block.Needs {
		if n.On == on {
			return true
		}
	}
	return false
}

// stopped is a block that was to end and has.
func (c *conductor) stopped(u *unit) {
	switch {
	case u.again && c.ending == nil && u.goal == up:
		u.again, u.stopAsked, u.phase, u.ready = false, time.Time{}, sdk.Pending, false
		if u.fresh {
			c.forgetProduct(u)
		}
		c.dirty = true
	case u.goal == gone:
		delete(c.units, u.addr())
		delete(c.values, u.addr())
		c.order = nil
		c.remove(u.addr())
	case !u.phase.Over():
		u.phase = sdk.Stopped
	}
}

// killAll ends every process at once.
func (c *conductor) killAll() {
	for _, u := range c.units {
		if u.life != nil {
			u.cancel()
		}
	}
}

// sorted returns the units in address order, so that a run does the same thing in the same order each time.
func (c *conductor) sorted() []*unit {
	if c.order == nil {
		c.order = make([]*unit, 0, len(c.units))
		for _, u := range c.units {
			c.order = append(c.order, u)
		}
		sort.Slice(c.order, func(i, j int) bool { return addr.Less(c.order[i].addr(), c.order[j].addr()) })
	}
	return c.order
}
