package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/proc"
	"github.com/recipe-rl/recipe/sdk/tail"
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
	Ready      bool            `json:"ready"`
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
	problem
}

// follow takes the worker's events until it ends, and answers for its weights meanwhile.
func (t *Trainer[C]) follow(ctx context.Context, program *proc.Program, f files) error {
	if err := t.listen(ctx, program, f); err != nil {
		return err
	}
	defer func() {
		t.mu.Lock()
		if t.control != nil {
			t.control.close()
		}
		t.control = nil
		t.mu.Unlock()
	}()
	// The worker goes on writing while it ends: its last checkpoint must be heard of.
	following, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	lines := make(chan event, 256)
	failed := make(chan error, 1)
	go func() {
		defer close(lines)
		err := tail.Follow(following, f.events, tail.Options{Poll: 10 * time.Millisecond, Done: program.Done()}, func(raw []byte) {
			var e event
			if err := json.Unmarshal(raw, &e); err != nil {
				t.host.Log("warn", fmt.Sprintf("the worker wrote an event that cannot be read: %v", err))
				return
			}
			select {
			case lines <- e:
			case <-following.Done():
			}
		})
		failed <- err
	}()
	w := &watch[C]{trainer: t, done: make(chan error, 1), turns: turns{taken: make(chan error, 1)}}
	t.mu.Lock()
	t.asks = len(t.req.SyncedBy) > 0
	t.mu.Unlock()
	// What is done for the worker ends with it.
	working, idle := context.WithCancel(ctx)
	defer idle()
	stop := ctx.Done()
	var kill, given <-chan time.Time
	var broken error
	for {
		var err error
		select {
		case e, more := <-lines:
			if !more {
				<-program.Done()
				idle()
				w.wait()
				return w.end(ctx, program, <-failed)
			}
			w.take(working, e)
		case err = <-w.done:
			if err != nil {
				err = fmt.Errorf("bring the weights of step %d to inference: %w", w.step, err)
			}
			w.synced(working)
		case err = <-w.turns.taken:
			w.took(working)
		case <-given:
			return broken
		case <-stop:
			stop = nil
			t.host.Phase(sdk.Draining, "writing a last checkpoint")
			if err := program.Signal(stopSignal); err != nil && !errors.Is(err, proc.ErrGone) {
				t.host.Log("warn", err.Error())
			}
			kill = time.After(time.Duration(float64(t.host.Grace()) * stopShare))
		case <-kill:
			w.wait()
			return &sdk.Error{Summary: fmt.Sprintf("the worker did not write its last checkpoint within the grace period of %s: it is killed, and training continues from the checkpoint before", t.host.Grace()),
				Remedy: "raise health { stop_timeout } to what a checkpoint takes, or lower save_every so that less is lost"}
		}
		switch lost := (*url.Error)(nil); {
		case err == nil || ctx.Err() != nil:
		case !errors.As(err, &lost):
			return err
		case broken == nil:
			// The worker is about to end, perhaps because all is done: how it ends says more than that it did not answer.
			broken, given = err, time.After(lastWords)
		}
	}
}

// lastWords is how long a worker may take to end whose control server has broken off an answer.
const lastWords = 10 * time.Second

// listen waits until the worker's control server is there, or the worker has ended.
func (t *Trainer[C]) listen(ctx context.Context, program *proc.Program, f files) error {
	limit := time.NewTimer(listenTimeout)
	defer limit.Stop()
	for {
		var ready struct {
			Address  string `json:"address"`
			Protocol int    `json:"protocol"`
		}
		data, err := os.ReadFile(f.ready)
		if err == nil && json.Unmarshal(data, &ready) == nil && ready.Address != "" {
			if ready.Protocol != protocolVersion {
				return fmt.Errorf("the worker speaks protocol %d, this supervisor %d; they must come from one build", ready.Protocol, protocolVersion)
			}
			t.mu.Lock()
			t.control = newControl(ready.Address, t.token())
			t.mu.Unlock()
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-program.Done():
			return nil // its events say why, or its log does
		case <-limit.C:
			return &sdk.Error{Summary: fmt.Sprintf("the worker did not listen within %s", listenTimeout), Detail: program.Tail(10),
				Remedy: "importing PyTorch hangs or the machine is overloaded: try `python -c \"import torch, transformers\"` with the block's interpreter"}
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// protocolVersion is that of worker/PROTOCOL.md.
const protocolVersion = 1

const logTail = 200

// watch is what the events so far came to. One goroutine owns it.
type watch[C any] struct {
	trainer *Trainer[C]
	done    chan error // of the sync in progress
	syncing bool
	next    *int64 // step of the weights that are ready before the sync of those before them was seen to be done
	ever    bool   // a sync has begun in this life
	step    int64
	trained int64 // newest step
	saved   int64 // step of the newest checkpoint
	failure *problem
	over    string // completed, stopped or solved
	turns   turns
	doing   doing
}

// take turns an event into what the host is told.
func (w *watch[C]) take(ctx context.Context, e event) {
	t, host := w.trainer, w.trainer.host
	switch e.Type {
	case "phase":
		t.enter(&w.doing, e)
		w.phase(ctx, e)
	case "loaded":
		t.ready(e.Memory, e.Machine)
	case "resumed":
		w.trained, w.saved = e.Step, e.Step
		host.Log("info", fmt.Sprintf("continues from %s: step %d, policy version %d", e.Checkpoint, e.Step, e.Version))
	case "metric":
		host.Metrics(e.Step, flatten(e.Metrics))
		t.trained(string(e.Batch))
	case "skipped", "rejected":
		w.unused(e)
	case "progress":
		w.trained = e.Step
		host.Progress(e.Step, e.Steps, "steps")
		t.setOutputs(func(o *Outputs) { o.Step = e.Step })
	case "weights":
		if e.Ready {
			w.turns.used = w.turns.asking
			w.sync(ctx, e.Step)
		}
	case "checkpoint":
		w.saved = e.Step
		host.Checkpoint(sdk.CheckpointInfo{Path: e.Path, Step: e.Step, Version: host.Version()})
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

// unused tells of groups that were not trained on. A batch of which that is so for all of them, or for some that cannot be
// read, shows in the status until another trains.
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

// phase tells where the worker stands. Once its model is loaded the block is ready and stays so.
func (w *watch[C]) phase(ctx context.Context, e event) {
	host := w.trainer.host
	switch e.Phase {
	case "starting":
		host.Phase(sdk.Loading, "starting")
	case "loading":
		host.Phase(sdk.Loading, "loading the model")
	case "connecting":
		w.trainer.tellPhase("registering with the trajectory API")
	case "sync":
		// Still ready: the sync block comes only to a trainer that is, and this one waits for it.
		w.trainer.tellPhase("waiting until inference serves its weights")
		// A worker that continued from a checkpoint wants its weights served before anything else. Otherwise the event weights has
		// said so already, and the phase comes back after each publication.
		if !w.ever {
			w.sync(ctx, e.Step)
		}
	case "grant":
		w.trainer.tellPhase("has a batch")
		w.turn(ctx, e.Step+1)
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

// sync lets the sync block take the weights of a step, in its own goroutine: publishing is one of the worker's events.
func (w *watch[C]) sync(ctx context.Context, step int64) {
	if len(w.trainer.req.SyncedBy) == 0 {
		return // nobody takes weights, and the worker does not wait
	}
	if w.syncing {
		w.next = &step // a short step can end before the answer to the acknowledgement of the one before it has come
		return
	}
	w.syncing, w.ever, w.step = true, true, step
	go func() { w.done <- w.trainer.serve(ctx, step) }()
}

// synced notes that a sync is done, and begins the one that waits for that.
func (w *watch[C]) synced(ctx context.Context) {
	w.syncing = false
	if next := w.next; next != nil {
		w.next = nil
		w.sync(ctx, *next)
	}
}

// wait waits for a sync in progress, whose calls fail now that the worker is gone.
func (w *watch[C]) wait() {
	w.turns.wait()
	if w.syncing {
		if err := <-w.done; err != nil {
			w.trainer.host.Log("debug", fmt.Sprintf("the sync of step %d ended with the worker: %v", w.step, err))
		}
		w.syncing = false
	}
}

// serve is one synchronised step: the host returns when inference serves the weights, or at once when nobody wants them.
func (t *Trainer[C]) serve(ctx context.Context, step int64) error {
	t.mu.Lock()
	t.published = noVersion
	t.mu.Unlock()
	if _, err := t.host.Sync(ctx, step, t); err != nil {
		return err
	}
	c, err := t.worker()
	if err != nil {
		return err
	}
	t.mu.Lock()
	version := t.published
	t.mu.Unlock()
	if err := t.fitShared(ctx); err != nil { // before the next batch
		return err
	}
	if version == noVersion { // not taken: the worker goes on under the version that it had
		var state struct {
			Version int64 `json:"policy_version"`
		}
		if err := c.do(ctx, "GET", "state", nil, &state); err != nil {
			return err
		}
		version = state.Version
	}
	return c.post(ctx, "synced", map[string]any{"version": version}, nil)
}

// noVersion says that nothing has been published.
const noVersion = -1

// end says how the worker ended.
func (w *watch[C]) end(ctx context.Context, program *proc.Program, followed error) error {
	err := program.Err()
	switch {
	case w.failure != nil:
		return errors.Join(w.failure.asError("training failed"), followed)
	case err != nil && ctx.Err() == nil:
		return Diagnose(err, program.Tail(logTail), w.trainer.program.Symptoms)
	case ctx.Err() != nil && w.over == "" && w.trained > w.saved:
		return errors.Join(&sdk.Error{Summary: fmt.Sprintf("the worker ended before it had written a last checkpoint: training was at step %d, and continues from step %d", w.trained, w.saved),
			Detail: program.Tail(10), Err: err}, followed)
	case ctx.Err() != nil:
		return ctx.Err()
	case w.over == "":
		return errors.Join(errors.New("the worker ended without saying that it was done"), followed)
	case w.over == "stopped": // not by this side, which would have ended the context
		return &sdk.Error{Summary: "somebody told the worker to end (SIGTERM), and it did after a last checkpoint", Err: followed,
			Remedy: "started again it continues exactly where it was; to stop a run, use recipe stop"}
	}
	w.trainer.host.Log("info", "training is over: "+w.over)
	return followed
}

// ready gives the outputs when the model is loaded, before the first batch: the sync block needs the control endpoint by then.
func (t *Trainer[C]) ready(memory, machine string) {
	t.mu.Lock()
	t.outputs = Outputs{outputs.Trainer{Model: t.program.Model}, t.program.Transports, memory, machine, t.req.Placement.Devices}
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

// trained takes the trouble with an earlier batch out of the status.
func (t *Trainer[C]) trained(batch string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.troubled != batch {
		t.trouble = ""
	}
}
