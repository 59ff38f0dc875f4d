// Package tracking passes what a run reports on to experiment trackers: TensorBoard.
//
// It follows the run's event log from where it was last taken, so a tracker that is slow, fails or is not there costs
// the run nothing, and the next engine goes on where this one ended.
package tracking

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
)

// Options are what following a run needs.
type Options struct {
	Trackers []schema.Tracking
	Dir      state.Dir
	// Record writes an event into the run's log.
	Record func(event.Event)
}

// Trackers follow a run.
type Trackers struct {
	followers []*follower
	leave     context.CancelFunc
	wait      sync.WaitGroup
}

const (
	flushEvery = time.Second
	retryAfter = 30 * time.Second
	// endTimeout bounds what is left to be passed on when a run has ended.
	endTimeout = time.Minute
)

// follower passes the events of a run on to one tracker.
type follower struct {
	schema.Tracking
	opts Options
	seq  uint64 // the tracker has all events up to this one
	sink *board
	last uint64 // written, not flushed yet
	next time.Time
}

// Start begins to follow.
func Start(ctx context.Context, o Options) (*Trackers, error) {
	t := &Trackers{}
	ctx, t.leave = context.WithCancel(context.WithoutCancel(ctx))
	for _, tracking := range o.Trackers {
		f := &follower{Tracking: tracking, opts: o}
		if err := f.recall(); err != nil {
			t.leave()
			return nil, err
		}
		t.followers = append(t.followers, f)
	}
	for _, f := range t.followers {
		t.wait.Go(func() { f.follow(ctx) })
	}
	return t, nil
}

// Stop passes on what is left, for a limited time.
func (t *Trackers) Stop() {
	t.leave()
	t.wait.Wait()
}

// follow passes events on until ctx ends, and then those that are left. What a tracker could not take is passed on
// again later.
func (f *follower) follow(ctx context.Context) {
	for ctx.Err() == nil {
		err := f.attempt(ctx, func(take func(event.Event) error) error {
			return event.Follow(ctx, f.opts.Dir.Events(), f.seq, take)
		})
		if ctx.Err() != nil {
			break
		}
		f.degraded(err, fmt.Sprintf("it is tried again in %s", retryAfter))
		select {
		case <-time.After(retryAfter):
		case <-ctx.Done():
		}
	}
	ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	err := f.attempt(ended, func(take func(event.Event) error) error {
		return event.Read(f.opts.Dir.Events(), max(f.seq, f.last), take)
	})
	if err = errors.Join(err, f.finish()); err != nil {
		f.degraded(err, "the next apply passes the rest on")
	}
}

func (f *follower) degraded(err error, then string) {
	f.opts.Record(event.Event{Type: event.Notice, Level: "warn", Message: fmt.Sprintf(
		"tracking.%s.%s is degraded: %v; the run continues, and %s", f.Tracker, f.Name, err, then)})
}

// attempt passes on the events that read reads, and closes the sink on an error.
func (f *follower) attempt(ctx context.Context, read func(func(event.Event) error) error) error {
	if f.sink == nil {
		s, err := openBoard(f.folder(), time.Now())
		if err != nil {
			return err
		}
		f.sink, f.last, f.next = s, f.seq, time.Now().Add(flushEvery)
	}
	err := read(func(e event.Event) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := f.sink.write(e); err != nil {
			return err
		}
		f.last = e.Seq
		if time.Now().Before(f.next) {
			return nil
		}
		f.next = time.Now().Add(flushEvery)
		return f.flush()
	})
	if err != nil && ctx.Err() == nil {
		_ = f.sink.close() // the error says what is wrong
		f.sink, f.last = nil, f.seq
	}
	return err
}

// finish flushes and closes the sink.
func (f *follower) finish() error {
	if f.sink == nil {
		return nil
	}
	err := errors.Join(f.flush(), f.sink.close())
	f.sink = nil
	return err
}

func (f *follower) flush() error {
	if err := f.sink.flush(); err != nil {
		return err
	}
	f.seq = f.last
	return f.remember()
}

// folder is where a tracker's files are: dir, else a folder of the run directory.
func (f *follower) folder() string {
	if f.Dir != "" {
		return f.Dir
	}
	return filepath.Join(f.own(), "files")
}

// own is the tracker's folder in the run directory.
func (f *follower) own() string {
	return filepath.Join(string(f.opts.Dir), "tracking", f.Tracker+"."+f.Name)
}

// offset is what is kept between engines.
type offset struct {
	V   int    `json:"v"`
	Seq uint64 `json:"seq"` // the tracker has all events up to this one
}

func (f *follower) recall() error {
	text, err := os.ReadFile(filepath.Join(f.own(), "offset.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var o offset
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	if err != nil {
		return fmt.Errorf("read how far tracking.%s.%s is (remove %s to begin anew): %w", f.Tracker, f.Name, f.own(), err)
	}
	f.seq = o.Seq
	return nil
}

func (f *follower) remember() error {
	for _, dir := range []string{filepath.Dir(f.own()), f.own()} {
		if err := private.Dir(dir); err != nil {
			return err
		}
	}
	text, err := json.Marshal(offset{1, f.seq})
	if err != nil {
		return err
	}
	return private.WriteFile(filepath.Join(f.own(), "offset.json"), append(text, '\n'))
}

// environment is the name of a sample's environment.
func environment(e event.Event) string {
	if e.Environment != "" {
		return e.Environment
	}
	return e.Address
}

func indented(s string) string { return "    " + strings.ReplaceAll(s, "\n", "\n    ") }
