// Package attempt is one attempt of a block in a plugin's process: the Host that the plugin sees, the events that it
// reports, the phases of the block, and its end. The protocol is served by package process.
package attempt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/event"
	"github.com/recipe-rl/recipe/internal/eventlog"
	"github.com/recipe-rl/recipe/internal/wire"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/proc"
)

// DefaultGrace is how long a block may take to end when none is given.
const DefaultGrace = 30 * time.Second

// Plugin is one plugin value, with the configuration's type erased. Package define makes it.
type Plugin interface {
	Run(ctx context.Context, start wire.Start, host Host) error
	Prepare(ctx context.Context, start wire.Start, host sdk.Host, started, settled <-chan struct{}) error
	Update(ctx context.Context, config cty.Value) error
	Evaluate(ctx context.Context, limit int) (map[string]float64, sdk.TaskScores, error)
	EvaluateTasks(ctx context.Context, req sdk.EvaluateTasks) (sdk.TaskScores, error)
	Rescore(ctx context.Context, group sdk.RecordedGroup) (sdk.RescoredGroup, error)
	Checkpoint(ctx context.Context) (sdk.CheckpointInfo, error)
}

// ErrUnsupported reports that the plugin lacks an optional ability.
var ErrUnsupported = errors.New("the plugin does not support this")

// Attempt is the one attempt to run a block in this process: from the start until Run has returned.
type Attempt struct {
	def     *sdk.Definition
	plugin  Plugin
	events  *eventlog.Log
	start   wire.Start
	blanker atomic.Pointer[strings.Replacer]
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when Run has returned and the last phase has been reported

	activities activities
	pause      atomic.Pointer[func(ctx context.Context, paused bool) error] // nil: the block cannot be paused

	mu       sync.Mutex
	phase    sdk.Phase
	said     string // message of the phase
	failure  string
	outputs  cty.Value
	handle   []byte
	listen   string
	version  int64
	taken    bool // its accelerators' memory; see event.MemoryTaken
	grace    time.Duration
	stopping bool
	stage    *stage // nil: it was started without being prepared
}

// errStopped is the cause with which Run's context ends when a stop was asked for.
var errStopped = errors.New("the block was asked to stop")

// Begin opens the event log and starts Run in its own goroutine, or Prepare when the first phase is sdk.Preparing.
func Begin(def *sdk.Definition, plugin Plugin, start wire.Start, first sdk.Phase) (*Attempt, error) {
	events, err := eventlog.Open(filepath.Join(start.Dir, eventlog.FileName), start.FirstEvent, def.Outputs,
		eventlog.Limits{Secrets: secretsOf(start)})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	a := &Attempt{
		def: def, plugin: plugin, events: events, start: start, cancel: cancel, done: make(chan struct{}),
		phase: sdk.Pending, outputs: cty.NilVal, handle: start.Handle, listen: start.Listen, version: start.Policy.Version,
		grace: cmp.Or(start.Grace, DefaultGrace),
	}
	a.blanker.Store(newBlanker(secretsOf(start)))
	if first == sdk.Preparing {
		a.stage = &stage{starts: make(chan wire.Start, 1), settled: make(chan struct{})}
	}
	a.setPhase(event.PhaseChange{Phase: first})
	if len(start.Handle) > 0 {
		// Reported again, so that the events of this attempt alone are enough to find the programs of an earlier one.
		a.emit(event.Handle{Data: start.Handle})
	}
	go a.run(ctx)
	return a, nil
}

func (a *Attempt) run(ctx context.Context) {
	h := &host{Attempt: a}
	start, err := a.start, error(nil)
	if a.stage != nil {
		start, err = a.prepared(ctx, h)
	}
	if err == nil {
		err = a.guarded(func() error { return a.plugin.Run(ctx, start, h) })
	}
	a.finish(ctx, err)
	a.cancel(nil)
	close(a.done)
	_ = a.events.Close()
}

// guarded calls the plugin.
func (a *Attempt) guarded(f func() error) error {
	return Guard(a.start.Address, func() error {
		defer func() {
			if r := recover(); r != nil {
				panic(a.blanker.Load().Replace(fmt.Sprint(r))) // what it says goes to stderr
			}
		}()
		return f()
	})
}

// Guard calls code of the plugin's author. A panic becomes an error, and its stack goes to stderr: it must not take the
// gateway and the answers to the engine with it.
func Guard(address string, f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			fmt.Fprintf(os.Stderr, "panic in %s: %v\n%s", address, r, debug.Stack())
			err = &sdk.Error{
				Summary: fmt.Sprintf("the plugin panicked: %v", r),
				Remedy:  "the stack is in the block's stderr file; report it to the plugin's author",
			}
		}
	}()
	return f()
}

// finish turns what Run returned into the last phase.
func (a *Attempt) finish(ctx context.Context, err error) {
	cause := context.Cause(ctx)
	var broken *sdk.Error
	switch {
	case cause != nil && !errors.Is(cause, errStopped):
		// The SDK itself ended Run because the plugin broke the contract; that error comes before what Run returned.
		err = cause
	case cause != nil:
		if err = besidesStop(err); err == nil {
			a.setPhase(event.PhaseChange{Phase: sdk.Stopped})
			return
		}
	case err == nil:
		a.setPhase(event.PhaseChange{Phase: sdk.Completed})
		return
	}
	end := event.PhaseChange{Phase: sdk.Failed, Message: sdk.Message(err)}
	if errors.As(err, &broken) {
		end.Remedy, end.Path, end.Places, end.Final = broken.Remedy, broken.Path, broken.Places, broken.Final
	}
	a.setPhase(end)
}

// besidesStop is an error without the part that says that Run was stopped: for example a last checkpoint that could not
// be written, which an author joins to the error of the context. Nil: there is nothing else.
func besidesStop(err error) error {
	if err == nil || err == context.Canceled || err == errStopped { //nolint:errorlint // each leaf is looked at below
		return nil
	}
	switch e := err.(type) { //nolint:errorlint // likewise
	case interface{ Unwrap() []error }:
		var left []error
		for _, inner := range e.Unwrap() {
			if inner = besidesStop(inner); inner != nil {
				left = append(left, inner)
			}
		}
		if len(left) == len(e.Unwrap()) {
			return err
		}
		return errors.Join(left...)
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil && besidesStop(inner) == nil {
			return nil
		}
	case interface{ Is(error) bool }:
		if e.Is(context.Canceled) {
			return nil
		}
	}
	return err
}

// setPhase records and reports a phase. After a phase that is over nothing changes any more.
func (a *Attempt) setPhase(change event.PhaseChange) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.setPhaseLocked(change)
}

// reportPhase is a phase that the plugin reports. A block that is being stopped stays draining until it is over: calls
// that fail because of the stop make it neither degraded nor ready. What the plugin said then goes to the log.
func (a *Attempt) reportPhase(phase sdk.Phase, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.stopping || phase == sdk.Draining {
		a.setPhaseLocked(event.PhaseChange{Phase: phase, Message: text})
		return
	}
	if text != "" && !a.phase.Over() {
		a.emitLocked(event.LogLine{Level: "info", Message: "while it stops: " + text})
	}
}

func (a *Attempt) setPhaseLocked(change event.PhaseChange) {
	change.Message = a.blanker.Load().Replace(change.Message)
	// The same report again is no event: a plugin may report its phase from a loop.
	if a.phase.Over() || (a.phase == change.Phase && a.said == change.Message) {
		return
	}
	a.phase, a.said = change.Phase, change.Message
	if change.Phase == sdk.Failed {
		a.failure = change.Message
	}
	a.emitLocked(change)
}

func (a *Attempt) emit(body event.Body) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase.Over() {
		return
	}
	a.emitLocked(body)
}

func (a *Attempt) emitLocked(body event.Body) {
	if err := a.events.Append(a.blank(body)); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", a.start.Address, err)
		_ = a.events.Append(event.LogLine{Level: "warn", Message: err.Error()})
	}
}

// fail ends the block because its plugin broke the contract.
func (a *Attempt) fail(err error) { a.cancel(err) }

// Stop asks Run to end and waits for it. When the grace is over, or at once with kill, the programs that the plugin has
// recorded in its handle are killed, so that nothing is left behind even if Run never returns.
func (a *Attempt) Stop(ctx context.Context, grace time.Duration, kill bool) error {
	a.mu.Lock()
	if grace > 0 {
		a.grace = grace
	}
	grace = a.grace
	first := !a.stopping
	a.stopping = true
	a.mu.Unlock()
	if first && !kill {
		a.setPhase(event.PhaseChange{Phase: sdk.Draining})
	}
	a.cancel(errStopped)
	if !kill {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-a.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
	}
	return a.kill(grace)
}

// afterKill is how long Run may take to notice that its programs are gone.
const afterKill = 2 * time.Second

func (a *Attempt) kill(grace time.Duration) error {
	a.mu.Lock()
	handle := a.handle
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	killed := proc.KillAll(ctx, proc.Parse(handle))
	select {
	case <-a.done:
		return killed
	case <-time.After(afterKill):
	}
	err := fmt.Errorf("%s did not end within its grace of %s; its programs were killed", a.start.Address, grace)
	a.setPhase(event.PhaseChange{Phase: sdk.Failed, Message: err.Error(),
		Remedy: "read the block's log for what it was doing; raise health.stop_timeout if it needs longer"})
	return errors.Join(err, killed)
}

// Grace is how long the block may take to end in order.
func (a *Attempt) Grace() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.grace
}

// State is where an attempt stands.
type State struct {
	Phase     sdk.Phase
	Failure   string
	Outputs   cty.Value // cty.NilVal: none yet
	Handle    []byte
	Listen    string
	Version   int64 // of the policy
	LastEvent uint64
}

// State returns where the attempt stands.
func (a *Attempt) State() State {
	a.mu.Lock()
	defer a.mu.Unlock()
	return State{a.phase, a.failure, a.outputs, a.handle, a.listen, a.version, a.events.Last()}
}

// Pause makes the block begin no new work, or go on.
func (a *Attempt) Pause(ctx context.Context, paused bool) error {
	pause := a.pause.Load()
	if pause == nil {
		return ErrUnsupported
	}
	return Guard(a.start.Address, func() error { return (*pause)(ctx, paused) })
}

// Start is what the attempt was started with.
func (a *Attempt) Start() wire.Start { return a.start }

// Events are what the attempt reports.
func (a *Attempt) Events() *eventlog.Log { return a.events }

// Plugin is the plugin value that the attempt runs. Its methods are called with Guard.
func (a *Attempt) Plugin() Plugin { return a.plugin }

// Blank removes the block's secrets from a text.
func (a *Attempt) Blank(text string) string { return a.blanker.Load().Replace(text) }

// Running explains why the block does not run any more, if it does not.
func (a *Attempt) Running() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase.Over() {
		return fmt.Errorf("%s is %s%s", a.start.Address, a.phase, strings.TrimSuffix(": "+a.failure, ": "))
	}
	return nil
}
