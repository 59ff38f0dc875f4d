package view

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/term"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/snapshot"
)

const (
	redrawEvery  = 150 * time.Millisecond // of the table at a terminal
	metricsEvery = 5 * time.Second        // between two lines of one block's numbers in a pipe
)

// Live shows a live run: at a terminal a table that redraws below the lines worth keeping, in a pipe plain
// lines.
type Live struct {
	out   io.Writer
	style Style
	size  func() (width, height int)
	snap  *snapshot.Snapshot
	since time.Time // of the events shown: those of earlier applies only fill the snapshot
	drawn int       // lines of the table on the screen
	shown map[string]time.Time
	said  chan string
	hint  string // what Ctrl-C does now
	lost  func(error)
	left  atomic.Bool // the terminal was closed
}

// Lost sets what is called, once, when nothing can be shown any more. Follow continues: what it returns does not depend
// on it.
func (l *Live) Lost(f func(error)) { l.lost = f }

func (l *Live) show(text string) {
	if l.left.Load() {
		return
	}
	if _, err := io.WriteString(l.out, text); err != nil && l.lost != nil {
		l.lost(err)
		l.lost = nil
	}
}

// NewLive shows events on out. Events older than since update the snapshot and are not shown.
func NewLive(out io.Writer, s Style, since time.Time) *Live {
	size := func() (int, int) { return s.Width, 24 }
	if f, ok := out.(*os.File); ok && s.Terminal {
		size = func() (int, int) {
			width, height, err := term.GetSize(int(f.Fd()))
			if err != nil {
				return s.Width, 24
			}
			return width, height
		}
	}
	return &Live{out: out, style: s, size: size, snap: &snapshot.Snapshot{}, since: since, shown: map[string]time.Time{},
		said: make(chan string, 4), hint: "Ctrl-C stops the run at a checkpoint"}
}

// Draining answers the first Ctrl-C. Like Killing it may be called from anywhere; Follow shows it.
func (l *Live) Draining() {
	l.say(l.style.Yellow("Stopping: jobs write a checkpoint and end, then services stop. Ctrl-C again kills."))
}

// Leave ends the output: the terminal was closed. Follow continues.
func (l *Live) Leave() { l.left.Store(true) }

// Killing answers the second.
func (l *Live) Killing() { l.say(l.style.Red("Killing every process of the run.")) }

func (l *Live) say(text string) {
	select {
	case l.said <- text:
	default: // no follower
	}
}

// Follow shows the events in dir until the run has ended or ctx ends. It returns the last snapshot of the run.
func (l *Live) Follow(ctx context.Context, dir string) (*snapshot.Snapshot, error) {
	events := make(chan event.Event, 256)
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer close(events)
		done <- event.Follow(ctx, dir, 0, func(e event.Event) error {
			events <- e // the loop below reads until this side closes the channel
			if e.Type == event.RunEnded && !e.Time.Before(l.since) {
				return errEnded
			}
			return nil
		})
	}()
	tick := time.NewTicker(redrawEvery)
	defer tick.Stop()
	for {
		select {
		case e, open := <-events:
			if !open {
				l.draw(time.Now())
				if err := <-done; !errors.Is(err, errEnded) {
					return l.snap, err
				}
				return l.snap, nil
			}
			l.event(e)
		case text := <-l.said:
			l.hint = "Ctrl-C again kills"
			l.line(text)
		case now := <-tick.C:
			l.draw(now)
		}
	}
}

// errEnded stops the reader of the log at the end of the run.
var errEnded = errors.New("the run has ended")

func (l *Live) event(e event.Event) {
	again := e.Type == event.Phase && l.snap.SamePhase(e)
	l.snap.Apply(e)
	if again || e.Time.Before(l.since) || !l.worthALine(e) {
		return
	}
	if e.Type == event.Metrics {
		e.Metrics = headline(e.Metrics)
	}
	text := Line(l.style, e)
	if text == "" {
		return
	}
	l.line(text)
}

// line writes one permanent line above the table.
func (l *Live) line(text string) {
	l.erase()
	l.show(text + "\n")
}

// headline selects the main metrics of a run; the rest is in the log. A block that has none of them shows all.
func headline(m map[string]float64) map[string]float64 {
	out := map[string]float64{}
	for name, value := range m {
		if measuresSkill(name) || slices.Contains([]string{"reward", "loss", "staleness", "tokens_per_second"}, name) {
			out[name] = value
		}
	}
	if len(out) == 0 {
		return m
	}
	return out
}

// worthALine reports whether an event gets a permanent line. At a terminal the table shows what changes often.
func (l *Live) worthALine(e event.Event) bool {
	switch e.Type {
	case event.RunStarted, event.Output, event.Sample:
		return false
	case event.RunEnded, event.Restart, event.Adopted, event.Stalled, event.StallOver:
		return true
	case event.Notice:
		return e.Level != "debug"
	case event.LogLine:
		return e.Level == "error" || e.Level == "warn"
	case event.Phase:
		return !l.style.Terminal || e.Phase == "failed" || e.Phase == "degraded"
	case event.Checkpoint:
		return !l.style.Terminal
	case event.Metrics:
		if l.style.Terminal || e.Time.Sub(l.shown[e.Address]) < metricsEvery {
			return false
		}
		l.shown[e.Address] = e.Time
		return true
	default:
		return false
	}
}

// erase removes the table from the screen so that a line can be written in its place.
func (l *Live) erase() {
	if l.drawn > 0 {
		l.show(fmt.Sprintf("\r\x1b[%dA\x1b[J", l.drawn))
		l.drawn = 0
	}
}

func (l *Live) draw(now time.Time) {
	if !l.style.Terminal || len(l.snap.Blocks) == 0 {
		return
	}
	width, height := l.size()
	lines := append([]string{""}, BlockTable(l.style, l.snap, width-1)...)
	if still := StallLines(l.style, l.snap, width-1, now); len(still) > 0 {
		lines = append(append(lines, ""), still...)
	}
	if extra := l.curve(width); extra != "" {
		lines = append(lines, "", extra)
	}
	lines = append(lines, l.style.Dim(l.footer(now)))
	if most := max(height-1, 3); len(lines) > most {
		hidden := len(lines) - most + 1
		lines = append(lines[:most-1], l.style.Dim(fmt.Sprintf("… and %d more lines; recipe status shows all", hidden)))
	}
	// One write for the whole table: a terminal then never shows half of it.
	var b strings.Builder
	if l.drawn > 0 {
		fmt.Fprintf(&b, "\r\x1b[%dA", l.drawn) // the terminal may have echoed ^C: begin at the first column
	}
	for _, line := range lines {
		b.WriteString("\x1b[2K" + line + "\n")
	}
	b.WriteString("\x1b[J")
	l.drawn = len(lines)
	l.show(b.String())
}

// curve is the first trainer's reward over its steps so far, in one line.
func (l *Live) curve(width int) string {
	for _, a := range l.snap.Addresses() {
		series := l.snap.Blocks[a].History["reward"]
		if series == nil || len(series.Points) < 2 || !isTrainer(a) {
			continue
		}
		values := series.Resample(min(32, max(width-30, 8)))
		return fmt.Sprintf("reward %s %s %s", number(values[0]), l.style.Green(Sparkline(values)),
			number(values[len(values)-1]))
	}
	return ""
}

func (l *Live) footer(now time.Time) string {
	if l.snap.Started.IsZero() {
		return ""
	}
	if end := l.snap.Ended; !end.IsZero() {
		return span(end.Sub(l.snap.Started))
	}
	return span(now.Sub(l.snap.Started)) + " · " + l.hint
}
