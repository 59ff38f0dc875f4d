package worker

import (
	"context"
	"fmt"
)

// turns is the worker's side of a GPU that is shared with inference. One goroutine owns it.
type turns struct {
	taken  chan error // of the turn that is being asked for
	asking bool
	used   bool   // the turn that is being asked for has been given and is over, the answer is on its way
	next   *int64 // step of the turn that is wanted after it
	cancel context.CancelFunc
}

// turn asks for the GPU when the worker has a batch, in its own goroutine: weights may have to be published meanwhile.
func (w *watch[C]) turn(ctx context.Context, step int64) {
	if w.turns.asking {
		if w.turns.used { // else it is the same wish: the phase is told again after each command
			w.turns.next = &step
		}
		return
	}
	ctx, w.turns.cancel = context.WithCancel(ctx)
	w.turns.asking = true
	go func() { w.turns.taken <- w.trainer.take(ctx, step) }()
}

// wait ends a wish for a turn with the worker.
func (t *turns) wait() {
	if t.asking {
		t.cancel()
		<-t.taken
		t.asking = false
	}
}

// took notes that the answer has come, and asks for the turn that waits for that.
func (w *watch[C]) took(ctx context.Context) {
	t := &w.turns
	t.cancel()
	next := t.next
	t.asking, t.used, t.next = false, false, nil
	if next != nil {
		w.turn(ctx, *next)
	}
}

// take waits for the trainer's turn and lets the worker begin.
func (t *Trainer[C]) take(ctx context.Context, step int64) error {
	if err := t.host.Turn(ctx, step); err != nil {
		return err
	}
	if err := t.fitShared(ctx); err != nil || !t.host.Shared() {
		return err
	}
	c, err := t.worker()
	if err != nil {
		return err
	}
	return c.post(ctx, "grant", struct{}{}, nil)
}

// fitShared tells the worker whether it has to ask for turns at all, when that has changed.
func (t *Trainer[C]) fitShared(ctx context.Context) error {
	shared := t.host.Shared()
	t.mu.Lock()
	asks := t.asks
	t.mu.Unlock()
	if shared == asks {
		return nil
	}
	c, err := t.worker()
	if err != nil {
		return err
	}
	if err := c.post(ctx, "update", map[string]any{"wait_for_grant": shared}, nil); err != nil {
		return fmt.Errorf("tell the worker whether it shares its GPU: %w", err)
	}
	t.mu.Lock()
	t.asks = shared
	t.mu.Unlock()
	return nil
}
