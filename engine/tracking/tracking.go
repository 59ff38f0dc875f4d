// Package tracking passes what a run reports on to experiment trackers (TensorBoard, W&B, Trackio, MLflow) and to
// collectors of OpenTelemetry traces.
//
// It follows the run's event log from where it was last taken, so a tracker that is slow, fails or is not there costs
// the run nothing, and the next engine goes on where this one ended.
package tracking

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/schema/decode"
)

// Options are what following a run needs.
type Options struct {
	Trackers []decode.Tracking
	Dir      state.Dir
	Recipe   string // its name
	RunID    string
	// RecipeDir is the folder that relative paths of the recipe count from.
	RecipeDir string
	// Needs are the addresses of the blocks that a block refers to, by its own.
	Needs map[string][]string
	// Config is what trackers show as the configuration of the run. It contains no secrets.
	Config map[string]any
	// Record writes an event into the run's log.
	Record func(event.Event)
	// Secrets keeps texts out of the log.
	Secrets func(...string)
	// End bounds what is left to be passed on when the run has ended; 0: a minute.
	End time.Duration
}

// Trackers follow a run.
type Trackers struct {
	followers []*follower
	leave     context.CancelFunc      // no more events come
	end       context.CancelCauseFunc // nothing is waited for any more
	limit     time.Duration           // between the two
	wait      sync.WaitGroup
}

const (
	flushEvery = time.Second
	retryAfter = 30 * time.Second
	// rereadEvents is how many events before the first new one an exporter of traces reads again.
	rereadEvents = 20_000
)

// sink writes events for one tracker. After an error only abort may be called.
type sink interface {
	write(context.Context, event.Event) error
	// flush returns when the tracker has everything that was written.
	flush(context.Context) error
	close(context.Context) error
	abort()
}

// follower passes the events of a run on to one tracker.
type follower struct {
	decode.Tracking
	opts     Options
	seq      uint64 // the tracker has all events up to this one
	sink     sink
	last     uint64 // written, not flushed yet
	next     time.Time
	degraded bool   // and the log says so
	behind   string // why it has not all of the run at its end
}

// Start begins to follow.
func Start(ctx context.Context, o Options) (*Trackers, error) {
	t := &Trackers{limit: cmp.Or(o.End, time.Minute)}
	var all context.Context
	all, t.end = context.WithCancelCause(context.WithoutCancel(ctx))
	ctx, t.leave = context.WithCancel(all)
	for _, tracking := range o.Trackers {
		f := &follower{Tracking: tracking, opts: o}
		if err := f.recall(); err != nil {
			t.end(nil)
			return nil, err
		}
		o.Secrets(secrets(tracking.Tracker)...)
		t.followers = append(t.followers, f)
	}
	for _, f := range t.followers {
		t.wait.Go(func() { f.follow(all, ctx.Done()) })
	}
	return t, nil
}

// Stop passes on what is left, for a limited time.
func (t *Trackers) Stop() {
	t.leave()
	late := time.AfterFunc(t.limit, func() {
		t.end(fmt.Errorf("the run has ended, and it did not take what is left within %s", t.limit))
	})
	defer late.Stop()
	t.wait.Wait()
	t.end(nil)
}

// Behind are the trackers that have not all of the run, each with the reason. It is called after Stop.
func (t *Trackers) Behind() []string {
	var out []string
	for _, f := range t.followers {
		if f.behind != "" {
			out = append(out, f.behind)
		}
	}
	return out
}

// follow passes events on until ended is closed, and then those that are left. What a tracker could not take is passed
// on again later. Nothing is waited for once ctx ends.
func (f *follower) follow(ctx context.Context, ended <-chan struct{}) {
	events, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		<-ended
		cancel()
	}()
	for {
		err := f.attempt(ctx, events)
		over := events.Err() != nil
		switch {
		case err == nil:
			return
		case over:
			f.behind = fmt.Sprintf("tracking.%s.%s: %v", f.Tracker, f.Name, err)
			f.warn(err, "the next apply passes the rest on")
			return
		case !f.degraded:
			f.degraded = true
			f.warn(err, fmt.Sprintf("what is missing is passed on later; it is tried again every %s", retryAfter))
		}
		select {
		case <-time.After(retryAfter):
		case <-ended:
		}
	}
}

func (f *follower) warn(err error, then string) {
	f.notice("warn", fmt.Sprintf("is degraded: %v; the run continues, and %s", err, then))
}

func (f *follower) notice(level, message string) {
	f.opts.Record(event.Event{Type: event.Notice, Level: level, Message: fmt.Sprintf("tracking.%s.%s %s", f.Tracker,
		f.Name, message)})
}

// attempt passes events on with a new sink, until an error or until events ends and all of them are passed on.
func (f *follower) attempt(ctx, events context.Context) (err error) {
	if f.sink, err = f.open(ctx); err != nil {
		return err
	}
	defer f.sink.abort()
	f.last, f.next = f.seq, time.Now().Add(flushEvery)
	from := f.seq
	if f.Tracker == "otlp" { // the spans of a step are made of events before it
		from -= min(from, rereadEvents)
	}
	err = event.Follow(events, f.opts.Dir.Events(), from, func(e event.Event) error {
		if err := f.sink.write(ctx, e); err != nil {
			return err
		}
		f.last = max(f.last, e.Seq)
		if time.Now().Before(f.next) {
			return nil
		}
		return f.flush(ctx)
	})
	if err != nil {
		return err
	}
	return errors.Join(f.flush(ctx), f.sink.close(ctx))
}

func (f *follower) open(ctx context.Context) (sink, error) {
	switch f.Tracker {
	case "tensorboard":
		return openBoard(f.folder(), time.Now())
	case "otlp":
		return openExporter(ctx, f.Endpoint, f.opts, f.seq)
	}
	return f.startProgram(ctx)
}

func (f *follower) flush(ctx context.Context) error {
	f.next = time.Now().Add(flushEvery)
	if err := f.sink.flush(ctx); err != nil {
		return err
	}
	f.seq = f.last
	if f.degraded {
		f.degraded = false
		f.notice("info", "passes the run on again")
	}
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
	text, err := regular.ReadFile(filepath.Join(f.own(), "offset.json"), regular.Record)
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

// Reached is the number of the newest event that a tracker of the run has, also one that is no longer declared: the log
// must continue after it.
func Reached(dir state.Dir) (seq uint64) {
	paths, err := filepath.Glob(filepath.Join(string(dir), "tracking", "*", "offset.json"))
	if err != nil {
		return 0
	}
	for _, path := range paths {
		text, err := private.ReadFile(path, maxOffset)
		var o offset
		if err == nil && json.Unmarshal(text, &o) == nil { // Start reports one that cannot be read
			seq = max(seq, o.Seq)
		}
	}
	return seq
}

// maxOffset bounds offset.json.
const maxOffset = 4 << 10

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
