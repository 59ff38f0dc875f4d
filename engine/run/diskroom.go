package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/internal/disk"
)

// heldEvents is how many events are kept in memory while the disk is full. More are left in the processes that tell
// them.
const heldEvents = 10_000

// Waiting is something that the engine cannot write for now.
type Waiting struct {
	Path   string    `json:"path"`
	Free   uint64    `json:"free_bytes"`
	Since  time.Time `json:"since"`
	Reason string    `json:"reason"`
}

// diskRoom sees to the record and the event log while they cannot be written: it tries again until they can, and says
// so. Orders are answered meanwhile; what happens is kept in memory.
type diskRoom struct {
	mu      sync.Mutex
	since   time.Time // zero while everything is written
	reason  error
	held    int
	waiters sync.WaitGroup
	closing chan struct{}
	closed  bool
}

// check begins to try again when something could not be written.
func (r *diskRoom) check(e *Engine) {
	err, held := e.store.Failed(), e.log.Held()
	if err == nil && held == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = held
	if !r.since.IsZero() || r.closed {
		return
	}
	if err == nil {
		err = e.log.Full()
	}
	r.since, r.reason = e.now(), err
	fmt.Fprintf(os.Stderr,
		"recipe: the run's record %s. The run continues; no block is started until it can be written\n",
		disk.Waiting(string(e.opts.Dir), err))
	r.waiters.Go(func() { r.retry(e) })
}

func (r *diskRoom) retry(e *Engine) {
	tick := time.NewTicker(disk.RetryEvery)
	defer tick.Stop()
	for {
		select {
		case <-r.closing:
			return
		case <-tick.C:
		}
		if e.store.Sync() != nil || e.log.Flush() != nil {
			continue
		}
		r.mu.Lock()
		since, reason := r.since, r.reason
		r.since, r.reason, r.held = time.Time{}, nil, 0
		r.mu.Unlock()
		why := fmt.Sprintf("the disk of %s was full", e.opts.Dir)
		if !disk.Full(reason) && reason != nil {
			why = reason.Error()
		}
		said := fmt.Sprintf("the run's record could not be written for %s because %s; it is complete again",
			e.now().Sub(since).Round(time.Second), why)
		fmt.Fprintf(os.Stderr, "recipe: %s\n", said)
		e.append(event.Event{Type: event.Notice, Level: "warn", Message: said})
		return
	}
}

// full reports that no more events are to be taken from plugins for now.
func (r *diskRoom) full() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held >= heldEvents
}

func (r *diskRoom) close() {
	r.mu.Lock()
	closed := r.closed
	r.closed = true
	r.mu.Unlock()
	if !closed {
		close(r.closing)
	}
	r.waiters.Wait()
}

// Waiting lists what cannot be written for now.
func (e *Engine) Waiting() []Waiting {
	e.room.mu.Lock()
	defer e.room.mu.Unlock()
	if e.room.since.IsZero() {
		return nil
	}
	w := Waiting{Path: string(e.opts.Dir), Since: e.room.since}
	if e.room.reason != nil {
		w.Reason = e.room.reason.Error()
	}
	w.Free, _ = disk.Free(w.Path) // 0 when unknown
	return []Waiting{w}
}

// errStopped reports that a block was told to stop while its record waited for room.
var errStopped = errors.New("stop requested")

// record changes the block's record and returns when that is on the disk. While there is no room it waits, until ctx
// ends or the block is told to stop; the order is left for whoever follows the block.
func (at *attempt) record(ctx context.Context, change func(*state.Block)) error {
	at.e.note(at.block, change)
	for {
		err := at.e.store.Sync()
		if !disk.Full(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		case o := <-at.stop:
			at.stop <- o
			return errStopped
		case <-time.After(disk.RetryEvery):
		}
	}
}

// settled puts what was noted on the disk. A full disk is no error: what is kept in memory is written when there is
// room, before the log.
func (e *Engine) settled() error {
	if err := e.store.Sync(); !disk.Full(err) {
		return err
	}
	return nil
}
