package run

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/internal/disk"
	blockevent "github.com/recipe-rl/recipe/internal/event"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk"
)

// An attempt is one start of one block, from the process's launch (or its adoption) to its end. It runs in a goroutine
// of its own, owns the process, and reports to the supervisor, which decides what to do.
type attempt struct {
	e       *Engine
	block   addr.Block
	plugin  *schema.PluginSchema
	number  int
	health  decode.Health
	request host.Start // unused when a process is adopted
	// the block is prepared first: its start follows when what it refers to is ready
	prepares bool
	adopt    Process
	cursor   uint64
	printed  *processOutput
	placed   *Placed           // the job that it runs in; nil: this machine
	others   map[string]string // see supervisor.names
	recipe   *schema.Recipe    // that it is started with, for the places of its settings

	start  chan host.Start // of a block that was prepared
	settle chan struct{}   // of a block that is prepared: no other block sizes itself by free GPU memory any more
	stop   chan stopOrder
	update chan updateOrder
	fail   chan failOrder
	paused bool                    // as it was told; only the supervisor's goroutine touches it
	proc   atomic.Pointer[Process] // once it runs; to ask it, from any goroutine
}

// stopOrder asks an attempt to end in its own time. To kill it, its context is canceled.
type stopOrder struct{ reason string }

// updateOrder hands new values to a running block.
type updateOrder struct {
	config cty.Value
	done   chan error
}

// failOrder ends an attempt as failed: because it has stood still for too long, or for good because it cannot be
// started.
type failOrder struct {
	err    error
	remedy string
	final  bool
}

// report is what an attempt reports to the supervisor. Each runs in the supervisor's goroutine.
type report interface {
	phase(p sdk.Phase, outputs cty.Value)
	memoryTaken(taken bool)
	progress(e event.Event)
	ended(end ending)
	status(st host.Status, err error) // to a question for its status
	message(message string)           // with its newest phase
}

// source is what the plugin's schema says of its Python file; empty for other plugins.
func (at *attempt) source() string {
	if at.plugin == nil {
		return ""
	}
	return at.plugin.Source
}

func newAttempt(e *Engine, b addr.Block, p *schema.PluginSchema, number int, h decode.Health) *attempt {
	return &attempt{e: e, block: b, plugin: p, number: number, health: h, stop: make(chan stopOrder, 4),
		update: make(chan updateOrder, 4), fail: make(chan failOrder, 2),
		start: make(chan host.Start, 1), settle: make(chan struct{}, 1)}
}

// run does the whole attempt. It always ends with exactly one ended report.
func (at *attempt) run(ctx context.Context, r report) {
	at.printed = newProcessOutput(at)
	proc, end := at.begin(ctx, r)
	if proc != nil {
		at.proc.Store(&proc)
	}
	if ctx.Err() != nil {
		end = &ending{phase: sdk.Stopped, ordered: true, kill: true}
	}
	if end == nil {
		end = at.watch(ctx, proc, r)
	}
	if proc != nil {
		if end.phase == sdk.Failed && len(end.last) == 0 {
			end.last = at.e.opts.Host.LastLines(at.e.opts.Dir.Block(at.block), 20)
		}
		exitCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
		if end.kill {
			cancel() // Exit kills at once then
		}
		err := proc.Exit(exitCtx)
		at.printed.next(true)
		if err != nil {
			at.e.notice("error", fmt.Sprintf("%s: its plugin process %d cannot be ended: %v", at.block, proc.PID(),
				err))
		}
		cancel()
	} else {
		at.printed.next(true) // of a process that did not come up
	}
	r.ended(*end)
}

// begin launches (or adopts) the process and starts the block in it.
func (at *attempt) begin(ctx context.Context, r report) (Process, *ending) {
	proc := at.adopt
	if proc == nil {
		first := sdk.Starting
		if at.prepares {
			first = sdk.Preparing
		}
		r.phase(first, cty.NilVal)
		err := at.record(ctx, func(rec *state.Block) {
			rec.Intent, rec.Phase, rec.Attempt, rec.Error = state.IntentStart, string(first), at.number, ""
			rec.Started, rec.Ended = at.e.now().UTC(), time.Time{}
		})
		switch {
		case errors.Is(err, errStopped):
			return nil, &ending{phase: sdk.Stopped, ordered: true}
		case err != nil:
			return nil, failed("write the journal before the start", err)
		}
		launch := Launch{Block: at.block, Plugin: at.plugin.Name, Source: at.source(), RunID: at.request.RunID,
			Dir: at.e.opts.Dir.Block(at.block), Handle: at.request.Handle, Config: at.request.Config,
			Placed: at.placed, Listener: at.e.listeners.file(at.block)}
		if at.placed != nil {
			at.placed.Spec.Attempt = at.number
			at.placed.Report = func(message string) {
				at.e.append(event.Event{Type: event.Phase, Address: at.block.String(), BlockAttempt: at.number,
					Phase: string(sdk.Starting), Message: message})
				r.message(message)
			}
		}
		switch proc, err = at.launch(ctx, launch); {
		case errors.Is(err, errStopped):
			return nil, &ending{phase: sdk.Stopped, ordered: true}
		case err != nil:
			return nil, failed("start the plugin process", err)
		}
	}
	callCtx, cancel := context.WithTimeout(ctx, at.health.Timeout)
	defer cancel()
	if err := proc.Attach(callCtx, at.e.id, at.e.opts.Lease); err != nil {
		return proc, failed("attach to the plugin process", err)
	}
	if at.adopt != nil {
		return proc, nil
	}
	if at.prepares {
		if err := proc.Prepare(callCtx, at.request); err != nil {
			return proc, at.refused("prepare the block", err)
		}
		return proc, nil
	}
	return proc, at.startBlock(ctx, proc, at.request)
}

// startBlock starts the block in its process, which may have prepared it.
func (at *attempt) startBlock(ctx context.Context, proc Process, req host.Start) *ending {
	callCtx, cancel := context.WithTimeout(ctx, at.health.Timeout)
	defer cancel()
	req, err := at.reachable(callCtx, req)
	if err != nil {
		return failed("start the block", err)
	}
	if err := proc.Start(callCtx, req); err != nil {
		return at.refused("start the block", err)
	}
	err = at.record(ctx, func(rec *state.Block) { rec.Intent = state.IntentRun })
	if err != nil && !errors.Is(err, errStopped) { // one that is stopped ends in order, as it runs already
		return failed("write the journal after the start", err)
	}
	return nil
}

// streamItem is what the watching goroutine hands to the attempt.
type streamItem struct {
	event blockevent.Event
	err   error // the stream ended
}

// ownDiagnosis is how much longer than its start timeout a plugin that watches its start itself is waited for: it knows
// better than the engine why its program was not ready.
const ownDiagnosis = 15 * time.Second

// updateTimeout limits how long a block may take to apply new values: a trainer does so between two steps, and a step
// may take minutes.
const updateTimeout = 30 * time.Minute

// updated hands new values to the block, with addresses that it can reach.
func (at *attempt) updated(ctx context.Context, proc Process, config cty.Value) error {
	req, err := at.reachable(ctx, host.Start{Config: config})
	if err != nil {
		return err
	}
	return update(ctx, proc, req.Config)
}

func update(ctx context.Context, proc Process, config cty.Value) error {
	limited, cancel := context.WithTimeout(ctx, updateTimeout)
	defer cancel()
	err := proc.Update(limited, config)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		return fmt.Errorf("no answer within %s: %w", updateTimeout, err)
	}
	return err
}

// watch follows the block until it is over.
func (at *attempt) watch(ctx context.Context, proc Process, r report) *ending {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := make(chan streamItem, 256)
	done := make(chan struct{})
	go func() { defer close(done); at.stream(ctx, proc, events) }()
	defer func() { cancel(); <-done }()

	w := &watcher{attempt: at, proc: proc, report: r, seen: at.cursor}
	w.startDeadline = time.NewTimer(at.patience())
	defer w.startDeadline.Stop()
	w.stopDeadline = time.NewTimer(time.Hour)
	w.stopDeadline.Stop()
	defer w.stopDeadline.Stop()
	if at.adopt != nil {
		w.refresh(ctx)
	}
	alive := make(chan statusAnswer, 1)
	tick := time.NewTicker(at.health.Interval)
	defer tick.Stop()
	printed := time.NewTicker(outputEvery)
	defer printed.Stop()
	probing := false
	var late <-chan time.Time  // fires when the answer to a health check is late
	var updating chan struct{} // open while the block is handed new values, one order after the other
	defer func() {
		cancel()
		if updating != nil {
			<-updating
		}
	}()
	for w.end == nil {
		in, retry := events, (<-chan time.Time)(nil)
		updates := at.update
		if updating != nil {
			updates = nil
		}
		if w.ordered == nil && at.e.room.full() { // what it has to say waits in its process until there is room again
			in, retry = nil, time.After(disk.RetryEvery)
		}
		select {
		case <-retry:
		case e := <-in:
			w.event(ctx, e)
		case <-proc.Exited():
			w.exited(ctx, events)
		case req := <-at.start:
			w.start(ctx, req)
		case <-at.settle:
			w.settle(ctx)
		case o := <-at.stop:
			w.stop(ctx, o)
		case o := <-updates:
			updating = make(chan struct{})
			go func(finished chan struct{}) {
				defer close(finished)
				o.done <- at.updated(ctx, proc, o.config)
			}(updating)
		case <-updating:
			updating = nil
		case o := <-at.fail:
			if w.ordered == nil {
				w.end = &ending{phase: sdk.Failed, ready: w.ready, err: o.err, remedy: o.remedy,
					stalled: !o.final, invalid: o.final}
			}
		case <-w.startDeadline.C:
			w.startOverdue()
		case <-w.stopDeadline.C:
			w.end = &ending{phase: sdk.Stopped, ready: w.ready, ordered: true, kill: true,
				err: fmt.Errorf("it did not stop within %s and was killed", at.health.StopTimeout)}
		case <-tick.C:
			if !probing {
				probing, late = true, time.After(at.lateAfter())
				go func() { alive <- at.probe(ctx, proc) }()
			}
		case <-late:
			late = nil
			w.late()
		case <-printed.C:
			at.printed.next(false)
		case a := <-alive:
			probing, late = false, nil
			w.answered(a.err)
			w.report.status(a.status, a.err)
			w.probed(a.err)
		case <-ctx.Done():
			w.end = &ending{phase: sdk.Stopped, ready: w.ready, ordered: true, kill: true}
		}
	}
	return w.end
}

// patience is how long the block may take to become ready, or to be prepared.
func (at *attempt) patience() time.Duration {
	if limits(at.plugin) {
		return at.health.StartTimeout + ownDiagnosis
	}
	return at.health.StartTimeout
}

// stream keeps a Watch open, resuming at the cursor whenever it breaks.
func (at *attempt) stream(ctx context.Context, proc Process, events chan<- streamItem) {
	cursor := at.cursor
	for ctx.Err() == nil {
		err := proc.Watch(ctx, cursor, func(e blockevent.Event) {
			cursor = e.Seq
			select {
			case events <- streamItem{event: e}:
			case <-ctx.Done():
			}
		})
		if ctx.Err() != nil {
			return
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			select {
			case events <- streamItem{err: err}:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-proc.Exited():
			return
		case <-ctx.Done():
			return
		}
	}
}

// statusAnswer is what a question for the status came to.
type statusAnswer struct {
	status host.Status
	err    error
}

func (at *attempt) probe(ctx context.Context, proc Process) statusAnswer {
	c, cancel := context.WithTimeout(ctx, at.health.Timeout)
	defer cancel()
	st, err := proc.Status(c)
	return statusAnswer{st, err}
}

// watcher is the state of one attempt while it is followed; only the attempt's goroutine touches it.
type watcher struct {
	attempt       *attempt
	proc          Process
	report        report
	ready         bool
	ordered       *stopOrder
	seen          uint64 // number of the newest event
	failures      int
	silent        bool // a health check was late, and none was answered since
	unreached     bool // its machine could not be reached at the last health check
	current       sdk.Phase
	startDeadline *time.Timer
	stopDeadline  *time.Timer
	end           *ending
}

func (w *watcher) event(ctx context.Context, m streamItem) {
	if m.err != nil {
		return // the stream broke: it is reopened, and liveness is judged by Status and by the process itself
	}
	at := w.attempt
	w.seen = max(w.seen, m.event.Seq)
	if b, ok := m.event.Body.(blockevent.PhaseChange); ok {
		b.Message = at.withPlaces(b) // its plugin knows the setting, the engine where it is
		m.event.Body = b
	}
	out, ok, err := at.e.recordEvent(at.block, at.plugin, at.number, m.event)
	if err != nil {
		at.e.notice("error", err.Error())
	}
	switch b := m.event.Body.(type) {
	case blockevent.PhaseChange:
		w.report.message(b.Message)
		w.phase(ctx, b)
	case blockevent.MemoryTaken:
		w.report.memoryTaken(b.Taken)
	case blockevent.Outputs:
		w.report.phase(w.current, b.Values)
	default:
		if ok {
			w.report.progress(out)
		}
	}
}

func (w *watcher) phase(ctx context.Context, ph blockevent.PhaseChange) {
	w.current = ph.Phase
	switch ph.Phase {
	case sdk.Ready:
		w.ready = true
		w.startDeadline.Stop()
		w.refresh(ctx)
	case sdk.Completed:
		w.end = &ending{phase: sdk.Completed, ready: true, outputs: w.outputs(ctx), logged: true}
	case sdk.Stopped:
		w.end = &ending{phase: sdk.Stopped, ready: w.ready, ordered: w.ordered != nil, outputs: w.outputs(ctx),
			logged: true}
		if w.ordered == nil {
			w.end.phase, w.end.err = sdk.Failed, w.unasked(ph.Message)
		}
	case sdk.Failed:
		w.end = &ending{phase: sdk.Failed, ready: w.ready, err: errors.New(ph.Message), remedy: ph.Remedy, final: ph.Final,
			ordered: w.ordered != nil, logged: true}
	case sdk.Prepared:
		w.startDeadline.Stop() // it waits for others now
		w.report.phase(ph.Phase, cty.NilVal)
	default:
		w.report.phase(ph.Phase, cty.NilVal)
	}
}

// refresh reads phase and outputs from the process and passes them on.
func (w *watcher) refresh(ctx context.Context) {
	c, cancel := context.WithTimeout(ctx, w.attempt.health.Timeout)
	defer cancel()
	st, err := w.proc.Status(c)
	if err != nil {
		return // judged by the next probe
	}
	p := st.Phase
	w.current = p
	if p == sdk.Ready || p == sdk.Degraded {
		w.ready = true
		w.startDeadline.Stop()
	}
	if st.Listen != "" {
		w.attempt.e.note(w.attempt.block, func(rec *state.Block) { rec.Listen = st.Listen })
		w.attempt.e.listeners.keep(c, w.attempt.block, w.proc, st.Listen)
	}
	// Status may be ahead of the events: the end of the block is taken from its event, after everything that came
	// before it.
	if !p.Over() {
		w.report.phase(p, st.Outputs)
	}
}

func (w *watcher) outputs(ctx context.Context) cty.Value {
	c, cancel := context.WithTimeout(ctx, w.attempt.health.Timeout)
	defer cancel()
	st, err := w.proc.Status(c)
	if err != nil {
		return cty.NilVal
	}
	return st.Outputs
}

// exited is the end of the process, after whatever it still had to say.
func (w *watcher) exited(ctx context.Context, events <-chan streamItem) {
	for drained := false; !drained && w.end == nil; {
		select {
		case e := <-events:
			w.event(ctx, e)
		default:
			drained = true
		}
	}
	if w.end == nil {
		left, err := w.attempt.e.opts.Host.LastEvents(w.attempt.e.opts.Dir.Block(w.attempt.block), w.seen,
			w.attempt.plugin.Outputs)
		if err != nil {
			w.attempt.e.notice("warn", fmt.Sprintf("%s: read the last events of its dead plugin: %v",
				w.attempt.block, err))
		}
		for _, e := range left {
			w.event(ctx, streamItem{event: e})
		}
	}
	if w.end != nil {
		return
	}
	how := w.proc.Ended()
	if how != "" {
		how = " (" + how + ")"
	}
	w.end = &ending{phase: sdk.Failed, err: errors.New("its plugin process ended unexpectedly" + how), ready: w.ready,
		ordered: w.ordered != nil}
	if w.ordered != nil {
		w.end.phase, w.end.err = sdk.Stopped, errors.New("its plugin process ended before it had stopped cleanly")
	}
}

// stopMargin is how long after its stop timeout a process is killed: its last answer may be on its way.
const stopMargin = 5 * time.Second

func (w *watcher) stop(ctx context.Context, o stopOrder) {
	if w.ordered != nil {
		return
	}
	w.ordered = &o
	w.startDeadline.Stop()
	grace := w.attempt.health.StopTimeout
	w.attempt.e.note(w.attempt.block, func(rec *state.Block) { rec.Intent = state.IntentStop })
	w.report.phase(sdk.Draining, cty.NilVal)
	w.stopDeadline.Reset(grace + stopMargin)
	go func() {
		c, cancel := context.WithTimeout(ctx, grace+2*time.Second)
		defer cancel()
		// How the block ends is seen in its phase. A plugin that cannot even be told is caught by the stop deadline.
		_ = w.proc.Stop(c, grace, false, o.reason)
	}()
}

func (w *watcher) startOverdue() {
	if w.ready || w.ordered != nil {
		return
	}
	what := "ready"
	if inStage(w.current) {
		what = "prepared"
	}
	w.end = &ending{phase: sdk.Failed,
		err: fmt.Errorf("timed out: not %s within %s (last phase: %s)", what, w.attempt.health.StartTimeout, w.current),
		remedy: "Look at its log with `recipe logs " + w.attempt.block.String() +
			"`; if it needs more time, raise health { start_timeout }."}
}

func (w *watcher) probed(err error) {
	if w.unreachable(err) || err == nil {
		w.failures = 0
		return
	}
	if w.ordered != nil || errors.Is(err, context.Canceled) {
		return
	}
	if w.failures++; w.failures >= w.attempt.health.Failures {
		w.end = &ending{phase: sdk.Failed, ready: w.ready,
			err: fmt.Errorf("its plugin process %d did not answer %d health checks in a row (timeout %s each): %w",
				w.proc.PID(), w.failures, w.attempt.health.Timeout, err)}
	}
}
