package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/run/lifecycle"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// supervisor owns the picture of the run. Everything that changes it is a function run in its goroutine.
type supervisor struct {
	e      *Engine
	ctx    context.Context // of all attempts
	recipe *schema.Recipe
	blocks map[addr.Block]*blockState
	values map[addr.Block]cty.Value // outputs of every block that has some
	ending *endOfRun
	dirty  bool          // something that may allow or forbid a start has changed
	order  []*blockState // by address; nil after one came or went

	tick     <-chan time.Time
	canceled <-chan struct{} // nil once that was seen
	killed   bool
	stalls   stalls
	gap      engineGap
	pauses   pauses
	outputs  runOutputs

	evaluations evaluations
}

// endOfRun is why the run ends.
type endOfRun struct {
	status state.Status
	err    error
	why    string
	since  time.Time
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
		fmt.Fprintf(&b, "\nWhat to do: %s", f.Remedy)
	}
	return b.String()
}

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// do runs fn in the supervisor's goroutine. It does nothing once the run is over.
func (e *Engine) do(fn func(*supervisor)) {
	select {
	case e.inbox <- fn:
	case <-e.done:
	}
}

// Apply executes a plan and stays until the run is over: jobs done, a block failed for good, or stopped through Stop.
// The error of a failed run is a *Failure. Canceling ctx kills everything at once; use Stop to drain.
func (e *Engine) Apply(ctx context.Context, recipe *schema.Recipe, p *plan.Plan) (map[string]any, error) {
	first := false
	e.begun.Do(func() { first = true })
	if !first {
		return nil, errors.New("an engine applies one plan; a second one goes through Converge")
	}
	s := &supervisor{e: e, recipe: recipe, blocks: map[addr.Block]*blockState{}, values: map[addr.Block]cty.Value{}}
	defer s.evaluations.wait.Wait() // they end with the attempts, and once nothing can be asked any more
	defer close(e.done)
	attempts, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	s.ctx = attempts
	if err := s.open(p); err != nil {
		return nil, err
	}
	s.applyPlan(p)
	s.beginEvaluations(p)
	defer e.watchMachine(attempts)()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	s.tick, s.canceled = tick.C, ctx.Done()
	s.gap.looked = s.e.now().Round(0)
	for !s.finished() {
		if s.dirty {
			s.reconcile()
		}
		s.handleNext()
	}
	return s.close()
}

// sliceTime is how long reports are taken, or blocks started, before it is seen to whatever else waits: orders above
// all.
const sliceTime = 20 * time.Millisecond

// handleNext waits for something to happen and does what follows from it alone. Orders go before reports, and reports
// that wait already are taken together: what they allow and forbid is then looked at once.
func (s *supervisor) handleNext() {
	if s.dirty { // there is more to start
		s.reports(time.Now().Add(sliceTime))
		return
	}
	select {
	case fn := <-s.e.orders:
		fn(s)
	case fn := <-s.e.inbox:
		fn(s)
		s.reports(time.Now().Add(sliceTime))
	case <-s.tick:
		s.onTick()
	case <-s.canceled:
		s.kill()
	}
}

// reports takes what waits now, until a moment.
func (s *supervisor) reports(until time.Time) {
	for time.Now().Before(until) {
		select {
		case fn := <-s.e.orders:
			fn(s)
			continue
		case <-s.canceled:
			s.kill()
			continue
		default:
		}
		select {
		case fn := <-s.e.inbox:
			fn(s)
		default:
			return
		}
	}
}

// kill ends the run and every process of it at once.
func (s *supervisor) kill() {
	s.canceled, s.killed = nil, true
	s.end(state.Stopped, nil, "killed")
	s.killAll()
}

// open records that this engine works on the run.
func (s *supervisor) open(p *plan.Plan) error {
	e := s.e
	s.takePause()
	s.outputs.moved = true // what no block is needed for is known at once
	s.e.append(event.Event{Type: event.RunStarted, Digest: p.Digest, Message: e.opts.Command})
	e.store.Note(func(r *state.Run) {
		r.Recipe, r.File, r.Digest, r.Status, r.Error = e.opts.Name, e.opts.File, p.Digest, state.Running, ""
		r.Apply(p.Saved, e.now())
		r.Ended, r.Paused = time.Time{}, s.pauses.since
		r.Outputs = nil // the address of a server that has ended is none to connect to
		if r.Started.IsZero() {
			r.Started = e.now().UTC()
		}
		r.Engine = engineRecord(e)
	})
	return e.store.Sync() // with no room for this there is none for what would follow
}

// remove takes a block that has ended out of the run. Its events stay in the log.
func (s *supervisor) remove(a addr.Block) {
	s.e.store.Remove(a)
	s.e.append(event.Event{Type: event.Removed, Address: a.String()})
}

// forget takes blocks out of the run that ended earlier and are no longer declared. A plan for a part of the recipe
// decides about that part only.
func (s *supervisor) forget(p *plan.Plan) {
	planned := make(map[addr.Block]bool, len(p.Operations))
	for _, op := range p.Operations {
		planned[op.Address] = true
	}
	for _, b := range s.recipe.Blocks {
		if !planned[b.Addr] {
			return
		}
	}
	for a := range s.e.store.Run().Blocks {
		if s.blocks[a] == nil {
			s.remove(a)
		}
	}
}

// applyPlan makes block states of a plan's operations, or changes those that are there.
func (s *supervisor) applyPlan(p *plan.Plan) {
	s.recordLineage(p)
	for _, op := range p.Operations {
		if op.Action != plan.Nothing {
			s.e.append(event.Event{Type: event.Operation, Address: op.Address.String(), Action: string(op.Action),
				Message: firstReason(op), Needs: (&state.Block{Config: op.Config}).References()})
		}
		if b := s.blocks[op.Address]; b != nil {
			s.change(b, op)
			continue
		}
		s.add(op)
	}
	s.forget(p)
	s.dirty = true
}

func firstReason(op *plan.Operation) string {
	if len(op.Reasons) == 0 {
		return ""
	}
	return op.Reasons[0].Text
}

// add makes a block state for a block that this engine does not know yet: new, recorded, or found alive.
func (s *supervisor) add(op *plan.Operation) {
	rec := s.e.store.Block(op.Address)
	b := &blockState{block: op.Block, config: op.Config, devices: op.Devices}
	b.State = lifecycle.State{Phase: sdk.Pending}
	if b.block == nil { // to be stopped
		b.block = &schema.Block{Addr: op.Address, Schema: s.e.schemaOf(op.Address)}
	}
	if rec != nil {
		b.attempts, b.history = rec.Attempt, rec.Restarts
		b.told = RecordedOutputs(rec.Outputs, b.block.Schema)
	}
	s.blocks[op.Address], s.order = b, nil
	if proc := s.e.found[op.Address]; proc != nil {
		delete(s.e.found, op.Address)
		b.adopt = proc
	}
	alive := b.adopt != nil
	if alive {
		s.adopt(b)
	}
	switch op.Action {
	case plan.Nothing:
		if !alive {
			s.restoreRecorded(b, rec)
		}
	case plan.Update:
		s.sendUpdate(b)
	case plan.Resume, plan.Restart, plan.Replace:
		s.replan(b, op)
	case plan.Create:
	case plan.Stop:
		s.undeclare(b)
		if !alive {
			s.sweep(b.addr())
		}
	}
}

// replan starts a block again as a plan orders, or for the first time.
func (s *supervisor) replan(b *blockState, op *plan.Operation) {
	from := lifecycle.Resumed
	if op.Action == plan.Replace {
		from = lifecycle.Scratch
		s.evaluations.beginAnew(b.addr())
	}
	b.reason = firstReason(op)
	s.move(b, lifecycle.Replanned{From: from})
}

func (s *supervisor) undeclare(b *blockState) {
	b.reason = "it is no longer declared"
	s.move(b, lifecycle.Undeclared{})
}

// sweep ends what the dead process of a block has left behind, when the block is not started again, which would do it.
func (s *supervisor) sweep(a addr.Block) {
	ctx, cancel := context.WithTimeout(s.ctx, 20*time.Second)
	defer cancel()
	if err := s.e.opts.Host.Sweep(ctx, s.e.opts.Dir.Block(a)); err != nil {
		s.e.notice("error", fmt.Sprintf("%s: end its leftover processes: %v", a, err))
	}
}

// restoreRecorded gives a settled block the phase and outputs that are recorded of it.
func (s *supervisor) restoreRecorded(b *blockState, rec *state.Block) {
	if rec == nil {
		return
	}
	phase := sdk.Phase(rec.Phase)
	switch {
	case rec.External || b.addr().Kind.Life() == kind.Config:
		phase = sdk.Pending
	case !phase.Over():
		phase = sdk.Stopped
	}
	b.State = lifecycle.State{Phase: phase}
	names := redactedOutputs(rec.Outputs)
	s.setOutputs(b, withoutRedacted(RecordedOutputs(rec.Outputs, b.block.Schema), names))
	b.redacted = names
}

// change applies an operation of a second plan to a block that this engine already runs.
func (s *supervisor) change(b *blockState, op *plan.Operation) {
	if op.Block != nil {
		b.block, b.config, b.devices = op.Block, op.Config, op.Devices
		b.renewRules()
	}
	switch op.Action {
	case plan.Nothing, plan.Update:
		if !s.move(b, lifecycle.Redeclared{}) && op.Action == plan.Update {
			s.sendUpdate(b)
		}
	case plan.Stop:
		s.undeclare(b)
	default:
		b.err = nil
		s.replan(b, op)
	}
}

// reconcile starts what may start, stops what may stop, and sees whether the run is over.
func (s *supervisor) reconcile() {
	s.dirty = false
	if s.ending == nil {
		s.settle()
	}
	until := time.Now().Add(sliceTime)
	for _, b := range s.sorted() {
		switch {
		case b.Goal == lifecycle.Removed && !b.HasProcess():
			delete(s.blocks, b.addr())
			delete(s.values, b.addr())
			s.order = nil
			s.remove(b.addr())
		case b.Goal != lifecycle.Up || b.Again:
			s.stopInTurn(b)
		case s.ending != nil:
		case b.IsPreparing() && s.allowed(b):
			s.startPrepared(b)
		case b.Stage == lifecycle.Preparing && s.mayGoOn(b):
			s.move(b, lifecycle.MayUseMemory{})
			b.attempt.settle <- struct{}{}
		case b.MayBegin() && s.evaluations.delay(b.addr()):
		case b.MayBegin():
			begin := s.start
			if !s.allowed(b) {
				if !s.mayPrepare(b) {
					continue
				}
				begin = s.prepare
			}
			if time.Now().After(until) {
				s.dirty = true // the others after orders and reports
				return
			}
			begin(b)
		}
	}
}

// settle ends the run when its jobs are done, or when a block has failed for good.
func (s *supervisor) settle() {
	jobs, open := 0, 0
	for _, b := range s.sorted() {
		failed := b.err != nil && b.Phase == sdk.Failed && b.Over()
		if failed && restartPolicy(b.block.Meta.Restart).Mode != "ignore" {
			s.end(state.Failed, &Failure{Address: b.addr(), Err: b.err, Remedy: b.remedy, Last: b.last}, b.err.Error())
			return
		}
		if b.job() && b.Goal == lifecycle.Up {
			jobs++
			if !b.Over() {
				open++
			}
		}
	}
	if jobs == 0 || open > 0 || s.evaluations.left() || s.e.opts.Keep {
		return
	}
	if err := s.evaluations.refused(); err != nil {
		s.end(state.Failed, err, err.Error())
		return
	}
	s.end(state.Completed, nil, "all jobs are done")
}

// end begins the end of the run: everything is to go down, dependents first.
func (s *supervisor) end(status state.Status, err error, why string) {
	if s.ending != nil {
		return
	}
	s.reportStallsAtEnd(status)
	s.ending = &endOfRun{status: status, err: err, why: why, since: s.e.now()}
	if s.evaluations.stop != nil {
		s.evaluations.stop()
	}
	for _, b := range s.blocks {
		if b.Goal == lifecycle.Up {
			b.reason = why
		}
		s.move(b, lifecycle.RunEnds{})
	}
	s.dirty = true
}

// finished reports that the run is ending and nothing runs any more.
func (s *supervisor) finished() bool {
	if s.ending == nil {
		return false
	}
	for _, b := range s.blocks {
		if b.HasProcess() {
			return false
		}
	}
	return true
}

// allowed reports whether everything that a block needs is far enough.
func (s *supervisor) allowed(b *blockState) bool {
	for _, n := range b.block.Needs {
		on := s.blocks[n.On]
		if on == nil || on.Again || !on.reached(n.Condition) {
			return false
		}
	}
	return true
}

// stopInTurn stops a block once nothing that needs it runs any more.
func (s *supervisor) stopInTurn(b *blockState) {
	// A block that is only restarted leaves its dependents running: they hold or retry. One that is replaced does not.
	if b.Goal != lifecycle.Up || b.From == lifecycle.Scratch {
		for _, d := range s.blocks {
			if d.HasProcess() && d != b && (d.Goal != lifecycle.Up || d.Again) && needs(d, b.addr()) {
				return
			}
		}
	}
	s.orderStop(b, b.reason)
}

// orderStop orders the process of a block to stop, once.
func (s *supervisor) orderStop(b *blockState, why string) bool {
	if !s.move(b, lifecycle.Ordered{}) {
		return false
	}
	b.stopOrdered = s.e.now()
	b.attempt.stop <- stopOrder{reason: why}
	return true
}

func needs(d *blockState, on addr.Block) bool {
	for _, n := range d.block.Needs {
		if n.On == on {
			return true
		}
	}
	return false
}

// killAll ends every process at once.
func (s *supervisor) killAll() {
	for _, b := range s.blocks {
		if b.HasProcess() {
			b.cancel()
		}
	}
}

// sorted returns the blocks in address order, so that a run does the same thing in the same order each time.
func (s *supervisor) sorted() []*blockState {
	if s.order == nil {
		s.order = make([]*blockState, 0, len(s.blocks))
		for _, b := range s.blocks {
			s.order = append(s.order, b)
		}
		slices.SortFunc(s.order, func(a, b *blockState) int { return addr.Compare(a.addr(), b.addr()) })
	}
	return s.order
}
