package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/proc"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// event is one line of the worker's event file.
type event struct {
	Type       string          `json:"type"`
	Phase      string          `json:"phase"`
	ForWhat    string          `json:"for_what"`
	Step       int64           `json:"step"`
	Steps      int64           `json:"steps"`
	Version    int64           `json:"policy_version"`
	Metrics    map[string]any  `json:"metrics"`
	Path       string          `json:"path"`
	Checkpoint string          `json:"checkpoint"`
	What       string          `json:"what"`
	Attempt    int64           `json:"attempt"`
	Reason     string          `json:"reason"`
	Reasons    map[string]int  `json:"reasons"`
	Examples   map[string]any  `json:"examples"`
	SetAside   string          `json:"set_aside"`
	Facts      map[string]any  `json:"facts"`
	Outcome    string          `json:"outcome"`
	Batch      json.RawMessage `json:"batch"`
	Seconds    float64         `json:"seconds"`
	Reward     float64         `json:"reward"`
	Memory     string          `json:"memory"`
	Machine    string          `json:"machine"`
	Arithmetic string          `json:"compute_dtype"`
	problem
}

// follow handles the worker's messages until it ends, and serves its weights meanwhile.
func (t *Trainer[C]) follow(ctx context.Context, s *stage[C]) error {
	program, l, w := s.program, s.link, s.watch
	t.mu.Lock()
	t.link = l
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		t.link = nil
		t.mu.Unlock()
	}()
	// Work for the worker ends with it.
	working, idle := context.WithCancel(ctx)
	defer func() { idle(); w.asks.Wait() }()
	ended := l.ended(program)
	late := time.NewTimer(connectTimeout)
	defer late.Stop()
	stop := ctx.Done()
	var kill, given <-chan time.Time
	var broken, elsewhere error
	lost := s.lost()
	for {
		select {
		case m := <-l.inbox:
			w.handle(working, m)
		case <-ended:
			w.rest(l)
			idle()
			w.asks.Wait()
			if err := w.refused(ctx); err != nil {
				return err
			}
			return w.endOf(ctx, s.process, elsewhere, lost)
		case n := <-lost:
			if elsewhere = cmp.Or(elsewhere, w.blamed(ctx, n, s.others[n-1])); broken == nil && ctx.Err() == nil {
				broken, given = cmp.Or(elsewhere, t.endedOn(n, s.others[n-1])), time.After(lastWords)
			}
		case err := <-w.failed:
			switch {
			case ctx.Err() != nil:
			case !errors.Is(err, errGone):
				return err
			default: // the worker is about to end: its exit is more specific than a missing answer
				broken, given = err, time.After(lastWords)
			}
		case <-given:
			return broken
		case <-late.C:
			if !l.connected() {
				return unconnected(program)
			}
		case <-stop:
			stop = nil
			t.host.Phase(sdk.Draining, "writing a last checkpoint")
			if err := program.Signal(stopSignal); err != nil && !errors.Is(err, proc.ErrGone) {
				t.host.Log("warn", err.Error())
			}
			kill = time.After(time.Duration(float64(t.host.Grace()) * stopShare))
		case <-kill:
			return &sdk.Error{Summary: fmt.Sprintf("the worker did not write its last checkpoint within the grace period of "+
				"%s: it is killed, and training continues from the checkpoint before", t.host.Grace()),
				Remedy: "raise health { stop_timeout } to what a checkpoint takes, or lower checkpoints { every } so that less " +
					"is lost"}
		}
	}
}

// lastWords is how long a worker that broke off an answer may take to end.
const lastWords = 10 * time.Second

const logTail = 200

// watch is the state derived from the messages so far. One goroutine owns it.
type watch[C any] struct {
	trainer *Trainer[C]
	asks    sync.WaitGroup // requests of the worker that are being answered
	failed  chan error     // the first failure of them
	trained int64          // newest step
	saved   int64          // step of the newest checkpoint
	failure *problem
	over    string // completed, stopped or solved
	doing   doing
}

func newWatch[C any](t *Trainer[C]) *watch[C] {
	return &watch[C]{trainer: t, failed: make(chan error, 1)}
}

func (w *watch[C]) handle(ctx context.Context, m message) {
	switch m.ask {
	case "":
		w.event(m.event)
		return
	case "prepared":
		m.reply(map[string]any{"settings": w.trainer.late}, nil)
		return
	}
	w.asks.Go(func() { w.answer(ctx, m) })
}

// answer handles a request of the worker in its own goroutine: weights may have to be published meanwhile.
func (w *watch[C]) answer(ctx context.Context, m message) {
	host := w.trainer.host
	version := host.Version()
	var err error
	if m.ask == "turn" {
		err = host.Turn(ctx, m.step)
	} else if version, err = host.Sync(ctx, m.step, w.trainer.snapshot(m.ahead)); err != nil {
		err = fmt.Errorf("bring the weights of step %d to inference: %w", m.step, err)
	}
	if err == nil || ctx.Err() == nil { // a worker that is asked to stop ends by itself, with a last checkpoint
		m.reply(map[string]any{"version": version, "shared": host.Shared()}, err)
	}
	if err != nil {
		select {
		case w.failed <- err:
		default:
		}
	}
}

// refused is the failure of a request of a worker that has ended: the worker is told first, and may end before the
// failure is looked at here. Nil: none failed, or only because the worker ended.
func (w *watch[C]) refused(ctx context.Context) error {
	select {
	case err := <-w.failed:
		if ctx.Err() == nil && !errors.Is(err, errGone) && !errors.Is(err, context.Canceled) {
			return err
		}
	default:
	}
	return nil
}

// rest handles the messages that the worker sent before it ended. Its requests get no answer.
func (w *watch[C]) rest(l *link) {
	for {
		select {
		case m := <-l.inbox:
			if m.ask == "" {
				w.event(m.event)
			}
		default:
			return
		}
	}
}

// event passes an event on to the host.
func (w *watch[C]) event(e event) {
	t, host := w.trainer, w.trainer.host
	switch e.Type {
	case "phase":
		t.enter(&w.doing, e)
		w.phase(e)
	case "loaded":
		t.ready(e.Memory, e.Machine, e.Arithmetic)
	case "resumed":
		w.trained, w.saved = e.Step, e.Step
		host.Log("info", fmt.Sprintf("continues from %s: step %d", e.Checkpoint, e.Step))
	case "metric":
		host.Metrics(e.Step, flatten(e.Metrics))
		t.trained(string(e.Batch))
	case "skipped", "rejected":
		w.unused(e)
	case "progress":
		w.trained = e.Step
		host.Progress(e.Step, e.Steps, "steps")
		t.setOutputs(func(o *Outputs) { o.Step = e.Step })
	case "checkpoint":
		w.saved = e.Step
		host.Checkpoint(sdk.CheckpointInfo{Path: e.Path, Step: e.Step, Version: host.VersionOf(e.Step)})
		t.setOutputs(func(o *Outputs) { o.Checkpoint, o.Step = e.Path, e.Step })
	case "error":
		p := e.problem
		w.failure = &p
	default:
		if level, text := describe(e); text != "" {
			host.Log(level, text)
		}
	}
}

// unused reports groups that were not trained on. A batch with no trained group, or with unreadable ones, is shown in
// the status until another batch trains.
func (w *watch[C]) unused(e event) {
	t := w.trainer
	level, text := describe(e)
	t.host.Log(level, text)
	if e.Type == "skipped" {
		t.host.Metrics(e.Step, flatten(e.Facts))
	} else if e.Reasons["unreadable"] == 0 {
		return
	}
	t.mu.Lock()
	t.trouble, t.troubled = text, string(e.Batch)
	t.mu.Unlock()
}

// phase reports the worker's phase. Once its model is loaded the block is ready and stays so.
func (w *watch[C]) phase(e event) {
	host := w.trainer.host
	switch e.Phase {
	case "starting":
		host.Phase(sdk.Loading, "starting")
	case "loading":
		host.Phase(sdk.Loading, "loading the model")
	case "connecting":
		w.trainer.tellPhase("registering with the trajectory API")
	case "sync", "settling":
		// Still ready: the sync block serves only ready trainers, and this one waits for it.
		w.trainer.tellPhase("waiting until inference serves its weights")
	case "turn":
		w.trainer.tellPhase("has a batch")
	case "no_room":
		host.Log("warn", "it waits for "+e.ForWhat)
		host.Phase(sdk.Degraded, "waits for "+e.ForWhat)
	case "done":
		w.over = e.Reason
	default:
		text := e.Phase
		if e.ForWhat != "" {
			text += " for " + e.ForWhat
		}
		w.trainer.tellPhase(text)
	}
}

// end returns the result of the worker's end.
func (w *watch[C]) end(ctx context.Context, program *proc.Program) error {
	err := program.Err()
	switch {
	case w.failure != nil:
		e, settings := explain(*w.failure, w.trainer.program.Symptoms)
		w.trainer.locate(e, settings, w.failure.Message)
		return e
	case err != nil && ctx.Err() == nil:
		e, settings := diagnose(err, program.Tail(logTail), w.trainer.program.Symptoms)
		w.trainer.locate(e, settings, e.Detail)
		return e
	case ctx.Err() != nil && w.over == "" && w.trained > w.saved:
		return &sdk.Error{Summary: fmt.Sprintf("the worker ended before it had written a last checkpoint: training was at "+
			"step %d, and continues from step %d", w.trained, w.saved),
			Detail: program.Tail(10), Err: err}
	case ctx.Err() != nil:
		return ctx.Err()
	case w.over == "":
		return errors.New("the worker ended without saying that it was done")
	case w.over == "stopped": // not by the engine, which would have canceled the context
		return &sdk.Error{Summary: "the worker received SIGTERM and ended after a last checkpoint",
			Remedy: "started again it continues exactly where it was; to stop a run, use recipe stop"}
	}
	w.trainer.host.Log("info", "training is over: "+w.over)
	return nil
}

// ready reports the outputs when the model is loaded, before the first batch: the sync block needs the control endpoint
// by then.
func (t *Trainer[C]) ready(memory, machine, arithmetic string) {
	t.mu.Lock()
	t.outputs = Outputs{outputs.Trainer{Model: t.program.Model}, transport.Texts(t.program.Transports), memory, machine,
		arithmetic, t.program.Corrects, t.req.Placement.Devices}
	out := t.outputs
	t.mu.Unlock()
	t.host.Ready(out)
}

func (t *Trainer[C]) setOutputs(change func(*Outputs)) {
	t.mu.Lock()
	change(&t.outputs)
	out := t.outputs
	t.mu.Unlock()
	if out.Model != "" {
		t.host.SetOutputs(out)
	}
}

func (t *Trainer[C]) tellPhase(text string) {
	t.mu.Lock()
	known, trouble := t.outputs.Model != "", t.trouble
	t.mu.Unlock()
	switch {
	case known && trouble != "":
		t.host.Phase(sdk.Degraded, trouble)
	case known:
		t.host.Phase(sdk.Ready, text)
	}
}

// trained clears the problem of an earlier batch from the status.
func (t *Trainer[C]) trained(batch string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.troubled != batch {
		t.trouble = ""
	}
}
