package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/internal/disk"
	"github.com/recipe-rl/recipe/sdk"
)

// letGoPoll is how often to check whether an engine has released its run.
const letGoPoll = 50 * time.Millisecond

// Stop makes the engine of a run stop or kill everything, and waits until it has released the run. Each, if not nil, is
// called with every event meanwhile. The error names what could not be stopped or saved, or is ErrNoEngine if the
// engine ended before the run was stopped. If ctx ends first, the stop continues and the error is the context's.
func Stop(ctx context.Context, dir state.Dir, c *Client, why string, kill bool, each func(event.Event)) error {
	// Without a last event, what was there is read, too, and passed over by its time.
	last, _ := event.Last(dir.Events())
	ordered := time.Now()
	if err := c.Stop(ctx, why, kill); err != nil && !errors.Is(err, run.ErrOver) {
		// ErrOver: the engine is already ending
		var silent *SilentError
		if errors.As(err, &silent) || !gone(ctx, dir) {
			return err
		}
		return outcome(dir, nil)
	}
	if each == nil {
		each = func(event.Event) {}
	}
	var failures []string
	following, cancel := context.WithCancel(ctx)
	read := make(chan struct{})
	go func() {
		defer close(read)
		// The log gives what is shown and the engine's own failures; the outcome is in the record.
		_ = event.Follow(following, dir.Events(), last, func(e event.Event) error {
			if e.Time.Before(ordered) {
				return nil
			}
			if e.Type == event.Notice && e.Level == "error" {
				failures = append(failures, e.Message)
			}
			each(e)
			if e.Type == event.RunEnded {
				return errOver
			}
			return nil
		})
	}()
	err := letGoUnlessFull(ctx, dir, c)
	if err == nil { // all events are written
		select {
		case <-read:
		case <-time.After(time.Second):
		}
	}
	cancel()
	<-read
	if err != nil {
		return err
	}
	return outcome(dir, failures)
}

var errOver = errors.New("the run is over")

// fullPatience is how long to wait for disk space when a stop is otherwise complete.
const fullPatience = 3 * time.Second

// letGoUnlessFull waits until no engine holds the run. It does not wait for an engine that has ended every block and
// cannot record that because the disk is full.
func letGoUnlessFull(ctx context.Context, dir state.Dir, c *Client) error {
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		var since time.Time
		for waiting.Err() == nil {
			time.Sleep(fullPatience / 6)
			now, err := c.Status(waiting)
			if err != nil || len(now.Waiting) == 0 || anyAlive(now) {
				since = time.Time{}
				continue
			}
			if since.IsZero() {
				since = time.Now()
			}
			if time.Since(since) >= fullPatience {
				cancel(unrecorded(now.Waiting[0]))
			}
		}
	}()
	return letGo(waiting, dir)
}

func anyAlive(s Status) bool {
	for _, b := range s.Live {
		if b.Alive {
			return true
		}
	}
	return false
}

// unrecorded reports that a run was stopped but that could not be recorded.
func unrecorded(w run.Waiting) error {
	return &sdk.Error{
		Summary: fmt.Sprintf("everything has stopped, but that could not be recorded: the disk of %s is full (%s free)",
			w.Path, disk.Size(w.Free)),
		Detail: w.Reason,
		Remedy: "free disk space: the engine then records the stop within a second and exits; recipe stop --kill ends it " +
			"without a record, and the next recipe apply detects the stopped blocks",
	}
}

// letGo waits until no engine holds the run.
func letGo(ctx context.Context, dir state.Dir) error {
	tick := time.NewTicker(letGoPoll)
	defer tick.Stop()
	for state.Holder(dir) != nil {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}

// goneWithin is how long a process that was killed may take to release its run.
const goneWithin = 2 * time.Second

// gone reports whether no engine holds the run any more, after a call that the engine did not answer.
func gone(ctx context.Context, dir state.Dir) bool {
	ctx, cancel := context.WithTimeout(ctx, goneWithin)
	defer cancel()
	return letGo(ctx, dir) == nil
}

// outcome reads the result of a stop from the record. The run's own error names each block that this stop could not end
// in order; the errors of blocks may be older.
func outcome(dir state.Dir, failures []string) error {
	rec, err := state.Read(dir)
	if err != nil {
		return err
	}
	if rec.Status == state.New {
		return &sdk.Error{
			Summary: "the run was destroyed while it was being stopped",
			Remedy:  "recipe apply starts a new run",
		}
	}
	if rec.Status == state.Running {
		return fmt.Errorf("%w: it ended before the run was stopped", ErrNoEngine)
	}
	if rec.Error != "" {
		failures = append(failures, rec.Error)
	}
	if len(failures) == 0 {
		return nil
	}
	return &sdk.Error{
		Summary: fmt.Sprintf("the run is %s, with errors", rec.Status),
		Detail:  strings.Join(failures, "\n"),
		Remedy: "recipe status and recipe logs -r " + rec.File + " say more; " + Again(dir, rec.File) +
			" continues the run",
	}
}
