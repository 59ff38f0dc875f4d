package view

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/snapshot"
)

// metricsEvery is the time between two lines of one block's numbers, or of one output.
const metricsEvery = 5 * time.Second

// Live prints the events of a live run as plain lines.
type Live struct {
	out   io.Writer
	style Style
	snap  *snapshot.Snapshot
	since time.Time // of the events shown: those of earlier applies only fill the snapshot
	shown map[string]time.Time
	said  chan string
	lost  func(error)
	left  atomic.Bool // the terminal was closed
}

// Lost sets what is called, once, when nothing can be shown any more. Follow continues: what it returns does not depend
// on it.
func (l *Live) Lost(f func(error)) { l.lost = f }

// NewLive shows events on out. Events older than since update the snapshot and are not shown.
func NewLive(out io.Writer, s Style, since time.Time) *Live {
	return &Live{out: out, style: s, snap: &snapshot.Snapshot{}, since: since, shown: map[string]time.Time{},
		said: make(chan string, 4)}
}

// Draining answers the first Ctrl-C. Like Killing it may be called from anywhere; Follow shows it.
func (l *Live) Draining() { l.say(l.style.Yellow(DrainingText)) }

// Leave ends the output: the terminal was closed. Follow continues.
func (l *Live) Leave() { l.left.Store(true) }

// Killing answers the second.
func (l *Live) Killing() { l.say(l.style.Red(KillingText)) }

// The answers to an order to stop, to the first and to the second Ctrl-C.
const (
	StoppingText = "Stopping: jobs write a checkpoint and end, then services stop."
	DrainingText = StoppingText + " Ctrl-C again kills."
	KillingText  = "Killing every process of the run."
)

func (l *Live) say(text string) {
	select {
	case l.said <- text:
	default: // no follower
	}
}

// Follow shows the events in dir until the run has ended or ctx ends. It returns the last snapshot of the run.
func (l *Live) Follow(ctx context.Context, dir string) (*snapshot.Snapshot, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var err error
	if l.snap, err = snapshot.Before(dir, l.since); err != nil {
		return l.snap, err
	}
	events, done := Events(ctx, dir, l.snap.Last, l.since)
	for {
		select {
		case e, open := <-events:
			if !open {
				return l.snap, <-done
			}
			l.Event(e)
		case text := <-l.said:
			l.Print(text)
		}
	}
}

// Events follows the log in dir, after the event of a number, until ctx ends or a run that began after since has ended.
// Both channels must be read: the first until it is closed, then the second, which has the error of reading.
func Events(ctx context.Context, dir string, after uint64, since time.Time) (<-chan event.Event, <-chan error) {
	events, done := make(chan event.Event, 256), make(chan error, 1)
	go func() {
		defer close(events)
		err := event.Follow(ctx, dir, after, func(e event.Event) error {
			events <- e
			if e.Type == event.RunEnded && !e.Time.Before(since) {
				return errEnded
			}
			return nil
		})
		if errors.Is(err, errEnded) {
			err = nil
		}
		done <- err
	}()
	return events, done
}

// errEnded stops the reader of the log at the end of the run.
var errEnded = errors.New("the run has ended")

// Event prints the line of an event, if it is worth one.
func (l *Live) Event(e event.Event) {
	again := e.Type == event.Phase && l.snap.SamePhase(e)
	l.snap.Apply(e)
	if again || e.Time.Before(l.since) || !l.worthALine(e) {
		return
	}
	if e.Type == event.Metrics {
		e.Metrics = headline(e.Metrics)
	}
	if text := Line(l.style, e); text != "" {
		l.Print(text)
	}
}

// Print writes one line.
func (l *Live) Print(text string) {
	if l.left.Load() {
		return
	}
	if _, err := io.WriteString(l.out, text+"\n"); err != nil && l.lost != nil {
		l.lost(err)
		l.lost = nil
	}
}

// headline selects the main metrics of a run; the rest is in the log. A block that has none of them shows all.
func headline(m map[string]float64) map[string]float64 {
	out := map[string]float64{}
	for name, value := range m {
		if heldOut(name) || strings.Contains(name, "accuracy") || slices.Contains(Headlines(), name) {
			out[name] = value
		}
	}
	if len(out) == 0 {
		return m
	}
	return out
}

// worthALine reports whether an event gets a line.
func (l *Live) worthALine(e event.Event) bool {
	switch e.Type {
	case event.Phase, event.Checkpoint:
		return true
	case event.Metrics:
		if onlyEvaluation(e.Metrics) || e.Time.Sub(l.shown[e.Address]) < metricsEvery {
			return false
		}
		l.shown[e.Address] = e.Time
		return true
	case event.Output: // some have another value after each step
		if key := "output " + e.Name; hasValue(e) && e.Time.Sub(l.shown[key]) >= metricsEvery {
			l.shown[key] = e.Time
			return true
		}
		return false
	default:
		return Notable(e)
	}
}

// Notable reports whether an event is rare and important enough for a line that stays on the screen when a view of the
// run has ended.
func Notable(e event.Event) bool {
	switch e.Type {
	case event.RunEnded, event.Restart, event.Adopted, event.Stalled, event.StallOver, event.Silent, event.Answers,
		event.Alert, event.AlertOver:
		return true
	case event.Evaluation:
		return e.State != event.EvaluationBegun
	case event.Notice:
		return e.Level != "debug"
	case event.LogLine:
		return e.Level == "error" || e.Level == "warn"
	case event.Phase:
		return e.Phase == "failed" || e.Phase == "degraded"
	default:
		return false
	}
}
