package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/disk"
)

// letGoPoll is how often it is looked whether an engine has let go of its run.
const letGoPoll = 50 * time.Millisecond

// Stop tells the engine of a run to stop everything, or to kill it, and waits until it has let go of the run. Each, if
// not nil, is called with every event meanwhile. The error names what could not be stopped or saved. When ctx ends
// first, the stop goes on and the error is the context's.
func Stop(ctx context.Context, dir state.Dir, c *Client, why string, kill bool, each func(event.Event)) error {
	ordered := time.Now()
	if err := c.Stop(ctx, why, kill); err != nil && !errors.Is(err, run.ErrOver) {
		// an engine that ends already is waited for
		return err
	}
	if each == nil {
		each = func(event.Event) {}
	}
	var failures []string
	following, cancel := context.WithCancel(ctx)
	told := make(chan struct{})
	go func() {
		defer close(told)
		// The log is only there to be shown and for what the engine could not do itself; how it ended is in the record.
		_ = event.Follow(following, dir.Events(), 0, func(e event.Event) error {
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
	if err == nil { // what is left to be read is there
		select {
		case <-told:
		case <-time.After(time.Second):
		}
	}
	cancel()
	<-told
	if err != nil {
		return err
	}
	return outcome(dir, ordered, failures)
}

var errOver = errors.New("the run is over")

// fullPatience is how long room on the disk is waited for when nothing else is left of a stop.
const fullPatience = 3 * time.Second

// letGoUnlessFull waits until no engine holds the run. An engine that has ended every block and only waits for room on
// the disk to record that is not waited for: nobody knows when there will be room.
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

// unrecorded says that a run was stopped, and that this could not be written down.
func unrecorded(w run.Waiting) error {
	return &sdk.Error{
		Summary: fmt.Sprintf("everything has stopped, but that could not be recorded: the disk of %s has no room (%s free)",
			w.Path, disk.Size(w.Free)),
		Detail: w.Reason,
		Remedy: "make room: the engine records the end within a second then and ends itself; recipe stop --kill ends it " +
			"without, and the next recipe apply finds what has ended",
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

// outcome reads from the record how a stop ended.
func outcome(dir state.Dir, ordered time.Time, failures []string) error {
	rec, err := state.Read(dir)
	if err != nil {
		return err
	}
	if rec.Status == state.New {
		return &sdk.Error{
			Summary: "the run is gone: somebody destroyed it while it was being stopped",
			Remedy:  "recipe apply begins a new run",
		}
	}
	if rec.Status == state.Running {
		return &sdk.Error{
			Summary: "the engine ended before the run was stopped",
			Remedy: "recipe apply " + rec.File +
				" takes over what is still alive, and then it can be stopped; recipe destroy ends everything and " +
				"forgets the run",
		}
	}
	if rec.Error != "" {
		failures = append(failures, rec.Error)
	}
	blocks := make([]addr.Block, 0, len(rec.Blocks))
	for a := range rec.Blocks {
		blocks = append(blocks, a)
	}
	slices.SortFunc(blocks, addr.Compare)
	for _, a := range blocks {
		if b := rec.Blocks[a]; b.Error != "" && !b.Ended.Before(ordered.UTC().Truncate(time.Second)) &&
			!strings.Contains(rec.Error, b.Error) {
			failures = append(failures, fmt.Sprintf("%s: %s", a, b.Error))
		}
	}
	if len(failures) == 0 {
		return nil
	}
	return &sdk.Error{
		Summary: fmt.Sprintf("the run is %s, and not everything went well", rec.Status),
		Detail:  strings.Join(failures, "\n"),
		Remedy: "recipe status and recipe logs -r " + rec.File + " say more; recipe apply " + rec.File +
			" goes on from the newest checkpoint that was written",
	}
}
