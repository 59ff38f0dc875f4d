package live

import (
	"context"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/snapshot"
)

// follower carries the events of a run to the screen, and to plain lines once the screen was left.
type follower struct {
	v     *View
	snap  *snapshot.Snapshot
	batch []event.Event
	kept  []string   // notable lines, for the end
	plain *view.Live // nil: the screen is shown
}

// Follow shows the events in dir until the run has ended, ctx ends or the view is left. It returns the last snapshot of
// the run.
func (v *View) Follow(ctx context.Context, dir string) (*snapshot.Snapshot, error) {
	ctx, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer func() {
		cancel()
		background.Wait()
		v.source.close()
	}()
	until := v.opts.Since
	if v.opts.CtrlC == nil { // the end of the run does not end the view
		until = time.Now().AddDate(100, 0, 0)
	}
	began := make(chan beginning, 1)
	go func() { began <- begin(dir, v.opts.Since) }() // of a long log it takes seconds, once
	found := make(chan facts)
	background.Go(func() { v.source.watch(ctx, found) })
	background.Go(func() {
		defer close(v.ended)
		_, _ = v.program.Run() // however it ends, the run is followed
	})
	f := &follower{v: v, snap: &snapshot.Snapshot{}}
	err := f.loop(ctx, cancel, began, found, func(after uint64) (<-chan event.Event, <-chan error) {
		return view.Events(ctx, dir, after, until)
	})
	v.program.Quit()
	<-v.ended
	f.conclude()
	return f.snap, err
}

// loop ends when the events have ended and were all read. follow gives those after the beginning.
func (f *follower) loop(ctx context.Context, cancel func(), began <-chan beginning, found <-chan facts,
	follow func(after uint64) (<-chan event.Event, <-chan error)) error {
	var events <-chan event.Event
	var done <-chan error
	tick, clock := time.NewTicker(batchEvery), time.NewTicker(time.Second)
	defer tick.Stop()
	defer clock.Stop()
	left := f.v.ended
	for {
		select {
		case b := <-began:
			if b.err != nil {
				return b.err
			}
			f.snap = b.snap
			f.send(beginMsg{b.run})
			events, done = follow(b.snap.Last)
		case e, open := <-events:
			if !open {
				f.flush()
				return <-done
			}
			f.event(e)
		case <-tick.C:
			f.flush()
		case <-clock.C:
			f.send(clockMsg{})
		case facts := <-found:
			f.send(factsMsg(facts))
		case text := <-f.v.said:
			f.say(text)
		case <-left:
			left = nil
			if f.v.opts.CtrlC == nil {
				if cancel(); events == nil {
					return nil
				}
			} else {
				f.goOnPlain()
			}
		}
	}
}

func (f *follower) event(e event.Event) {
	f.snap.Apply(e)
	if f.plain != nil {
		f.plain.Event(e)
		return
	}
	if view.Notable(e) && !e.Time.Before(f.v.opts.Since) {
		f.keep(view.Line(f.v.opts.Style, e))
	}
	if f.batch = append(f.batch, e); len(f.batch) >= maxBatch {
		f.flush()
	}
}

func (f *follower) keep(line string) {
	f.kept = append(f.kept, line)
	if over := len(f.kept) - keptNotable; over > 0 {
		f.kept = f.kept[over:]
	}
}

// flush sends the events that have come to the screen.
func (f *follower) flush() {
	if len(f.batch) > 0 {
		f.send(eventsMsg(f.batch))
		f.batch = nil
	}
}

func (f *follower) send(m tea.Msg) {
	if f.plain == nil {
		f.v.program.Send(m) // returns at once when the program has ended
	}
}

func (f *follower) say(text string) {
	if f.plain != nil {
		f.plain.Print(text)
		return
	}
	f.keep(text)
	f.send(answerMsg(text))
}

// goOnPlain continues with plain lines.
func (f *follower) goOnPlain() {
	f.plain = view.NewLive(view.Guarded(f.v.out), f.v.opts.Style, f.v.opts.Since)
	f.plain.Lost(f.v.lost)
	if len(f.kept) > 0 {
		f.plain.Print(strings.Join(f.kept, "\n"))
	}
	f.kept = nil
	for _, e := range view.KnownOutputs(f.snap) {
		f.plain.Print(view.Line(f.v.opts.Style, e))
	}
	f.plain.Print("The run goes on here; Ctrl-C stops it at a checkpoint.")
}

// conclude prints what was notable, and the blocks as they are, so that they stay in the scrollback.
func (f *follower) conclude() {
	if f.v.opts.CtrlC == nil {
		return
	}
	lines := append(f.kept, "")
	lines = append(lines, view.BlockTable(f.v.opts.Style, f.snap, f.v.model.screen.width)...)
	if f.plain == nil {
		f.plain = view.NewLive(view.Guarded(f.v.out), f.v.opts.Style, f.v.opts.Since)
		f.plain.Lost(f.v.lost)
	}
	f.plain.Print(strings.Join(lines, "\n"))
}
