package sdk

import (
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

	"github.com/recipe-rl/recipe/sdk/eventlog"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/proc"
)

// defaultGrace is how long a block may take to end when none is given.
const defaultGrace = 30 * time.Second

// attempt is the one attempt to run a block in this process: from Start until Run has returned.
type attempt struct {
	def     *Definition
	plugin  instance
	events  *eventlog.Log
	start   StartRequest
	blanker atomic.Pointer[strings.Replacer]
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when Run has returned and the last phase has been reported

	activities

	mu       sync.Mutex
	phase    Phase
	said     string // message of the phase
	failure  string
	outputs  cty.Value
	handle   []byte
	listen   string
	version  int64
	grace    time.Duration
	stopping bool
	stage    *stage // nil: it was started without being prepared
}

// errStopped is the cause with which Run's context ends when a stop was asked for.
var errStopped = errors.New("the block was asked to stop")

// begin opens the event log and starts Run in its own goroutine, or Prepare when the first phase is that of its stage.
func begin(def *Definition, start StartRequest, first Phase) (*attempt, error) {
	events, err := eventlog.Open(filepath.Join(start.Dir, eventlog.FileName), start.FirstEvent,
		eventlog.Limits{Secrets: []string{start.Token, start.ControlToken}})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	l := &attempt{
		def: def, plugin: def.impl.instance(), events: events, start: start, cancel: cancel, done: make(chan struct{}),
		phase: Pending, outputs: cty.NilVal, handle: start.Handle, listen: start.Listen, version: start.Policy.Version,
		grace: defaultGrace,
	}
	l.blanker.Store(newBlanker(append([]string{start.Token, start.ControlToken}, start.Sensitive...)))
	if first == Preparing {
		l.stage = &stage{starts: make(chan StartRequest, 1)}
	}
	l.setPhase(first, "", "")
	if len(start.Handle) > 0 {
		// Reported again, so that the events of this attempt alone are enough to find the programs of an earlier one.
		l.emit(&pluginpb.Event{Body: &pluginpb.Event_Handle{Handle: &pluginpb.Handle{Data: start.Handle}}})
	}
	go l.run(ctx)
	return l, nil
}

func (l *attempt) run(ctx context.Context) {
	h := &host{attempt: l}
	start, err := l.start, error(nil)
	if l.stage != nil {
		start, err = l.prepared(ctx, h)
	}
	if err == nil {
		err = l.guarded(func() error { return l.plugin.run(ctx, start, h) })
	}
	l.finish(ctx, err)
	l.cancel(nil)
	close(l.done)
	_ = l.events.Close()
}

// guarded calls the plugin.
func (l *attempt) guarded(f func() error) error {
	return guard(l.start.Address, func() error {
		defer func() {
			if r := recover(); r != nil {
				panic(l.blanker.Load().Replace(fmt.Sprint(r))) // what it says goes to stderr
			}
		}()
		return f()
	})
}

// guard calls code of the plugin's author. A panic becomes an error, and its stack goes to stderr: it must not take the
// gateway and the answers to the engine with it.
func guard(address string, f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			fmt.Fprintf(os.Stderr, "panic in %s: %v\n%s", address, r, debug.Stack())
			err = &Error{
				Summary: fmt.Sprintf("the plugin panicked: %v", r),
				Remedy:  "the stack is in the block's stderr file; report it to the plugin's author",
			}
		}
	}()
	return f()
}

// finish turns what Run returned into the last phase.
func (l *attempt) finish(ctx context.Context, err error) {
	cause := context.Cause(ctx)
	var broken *Error
	switch {
	case cause != nil && !errors.Is(cause, errStopped):
		// The SDK itself ended Run because the plugin broke the contract; that error comes before what Run returned.
		err = cause
	case cause != nil:
		if err = besidesStop(err); err == nil {
			l.setPhase(Stopped, "", "")
			return
		}
	case err == nil:
		l.setPhase(Completed, "", "")
		return
	}
	remedy := ""
	if errors.As(err, &broken) {
		remedy = broken.Remedy
	}
	l.setPhase(Failed, Message(err), remedy)
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

// Message is an error as text for people, with the detail of an Error.
func Message(err error) string {
	var e *Error
	if errors.As(err, &e) && e.Detail != "" {
		return err.Error() + ": " + e.Detail
	}
	return err.Error()
}

// setPhase records and reports a phase. After a phase that is over nothing changes any more.
func (l *attempt) setPhase(phase Phase, text, remedy string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setPhaseLocked(phase, text, remedy)
}

// reportPhase is a phase that the plugin reports. A block that is being stopped stays draining until it is over: calls
// that fail because of the stop make it neither degraded nor ready. What the plugin said then goes to the log.
func (l *attempt) reportPhase(phase Phase, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.stopping || phase == Draining {
		l.setPhaseLocked(phase, text, "")
		return
	}
	if text != "" && !l.phase.Over() {
		l.emitLocked(&pluginpb.Event{Body: &pluginpb.Event_Log{
			Log: &pluginpb.Log{Level: "info", Message: "while it stops: " + text},
		}})
	}
}

func (l *attempt) setPhaseLocked(phase Phase, text, remedy string) {
	text = l.blanker.Load().Replace(text)
	// The same report again is no event: a plugin may report its phase from a loop.
	if l.phase.Over() || (l.phase == phase && l.said == text) {
		return
	}
	l.phase, l.said = phase, text
	if phase == Failed {
		l.failure = text
	}
	l.emitLocked(&pluginpb.Event{Body: &pluginpb.Event_Phase{
		Phase: &pluginpb.Phase{Phase: string(phase), Message: text, Remedy: remedy},
	}})
}

func (l *attempt) emit(e *pluginpb.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase.Over() {
		return
	}
	l.emitLocked(e)
}

func (l *attempt) emitLocked(e *pluginpb.Event) {
	l.blank(e)
	if err := l.events.Append(e); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", l.start.Address, err)
		_ = l.events.Append(&pluginpb.Event{Body: &pluginpb.Event_Log{
			Log: &pluginpb.Log{Level: "warn", Message: err.Error()},
		}})
	}
}

// fail ends the block because its plugin broke the contract.
func (l *attempt) fail(err error) { l.cancel(err) }

// stop asks Run to end and waits for it. When the grace is over, or at once with kill, the programs that the plugin has
// recorded in its handle are killed, so that nothing is left behind even if Run never returns.
func (l *attempt) stop(ctx context.Context, grace time.Duration, kill bool) error {
	l.mu.Lock()
	if grace > 0 {
		l.grace = grace
	}
	grace = l.grace
	first := !l.stopping
	l.stopping = true
	l.mu.Unlock()
	if first && !kill {
		l.setPhase(Draining, "", "")
	}
	l.cancel(errStopped)
	if !kill {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-l.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
	}
	return l.kill(grace)
}

// afterKill is how long Run may take to notice that its programs are gone.
const afterKill = 2 * time.Second

func (l *attempt) kill(grace time.Duration) error {
	l.mu.Lock()
	handle := l.handle
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	killed := proc.KillAll(ctx, proc.Parse(handle))
	select {
	case <-l.done:
		return killed
	case <-time.After(afterKill):
	}
	err := fmt.Errorf("%s did not end within its grace of %s; its programs were killed", l.start.Address, grace)
	l.setPhase(Failed, err.Error(),
		"read the block's log for what it was doing; raise health.stop_timeout if it needs longer")
	return errors.Join(err, killed)
}

// snapshot is what Status returns.
type snapshot struct {
	phase   Phase
	failure string
	outputs cty.Value
	handle  []byte
	listen  string
	version int64
	last    uint64
}

func (l *attempt) snapshot() snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	return snapshot{l.phase, l.failure, l.outputs, l.handle, l.listen, l.version, l.events.Last()}
}

// running says why the block does not run any more, if it does not.
func (l *attempt) running() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase.Over() {
		return fmt.Errorf("%s is %s%s", l.start.Address, l.phase, strings.TrimSuffix(": "+l.failure, ": "))
	}
	return nil
}
