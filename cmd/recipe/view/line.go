package view

import (
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/snapshot"
	"github.com/recipe-rl/recipe/engine/why"
)

// Line writes one event as one plain line, for logs and pipes; "" when the event has nothing to say to a person.
func Line(s Style, e event.Event) string {
	// Names come from plugins, too, and paths, units and metrics from what they run.
	for _, text := range []*string{&e.Address, &e.Name, &e.Unit, &e.Path, &e.Transport, &e.Inference, &e.Stream,
		&e.Phase, &e.Action} {
		*text = OneLine(*text)
	}
	what := say(s, e)
	if what == "" {
		return ""
	}
	stamp := s.Dim(e.Time.Local().Format(time.TimeOnly))
	if e.Address == "" {
		return stamp + " " + what
	}
	return stamp + " " + s.Cyan(e.Address) + " " + what
}

func say(s Style, e event.Event) string {
	message := OneLine(e.Message)
	switch e.Type {
	case event.RunStarted:
		return s.Bold("run started") + after(": ", message)
	case event.RunEnded:
		return s.Phase(e.Phase)("run "+e.Phase) + after(": ", message)
	case event.Phase:
		return s.Phase(e.Phase)(e.Phase) + after(": ", message) + after("; what to do: ", OneLine(e.Remedy))
	case event.Progress:
		if e.Total > 0 {
			return fmt.Sprintf("%d/%d %s", e.Step, e.Total, e.Unit)
		}
		return fmt.Sprintf("%d %s", e.Step, e.Unit)
	case event.Metrics:
		return fmt.Sprintf("step %d: %s", e.Step, measurements(e.Metrics))
	case event.LogLine, event.Notice:
		if e.Repeats > 0 {
			message += s.Dim(fmt.Sprintf(" (and %d similar before)", e.Repeats))
		}
		if e.Stream != "" {
			return s.Dim(e.Stream+":") + " " + message
		}
		switch e.Level {
		case "error":
			return s.Red("error: ") + message
		case "warn":
			return s.Yellow("warning: ") + message
		}
		return message
	case event.Checkpoint:
		return fmt.Sprintf("checkpoint at step %d: %s", e.Step, e.Path)
	case event.Weights:
		return fmt.Sprintf("weights version %d served by %s after %.2fs (%s)", e.Version, e.Inference, e.Seconds,
			e.Transport)
	case event.Sample:
		return fmt.Sprintf("sample, score %s: %s → %s", Number(e.Score), quote(brief(e.Prompt)),
			quote(brief(e.Completion)))
	case event.Restart:
		return s.Yellow(fmt.Sprintf("restart %d in %.1fs", e.Attempt, e.Delay)) + after(": ", message)
	case event.Adopted:
		return fmt.Sprintf("adopted (pid %d)", e.PID)
	case event.Stalled:
		return s.Yellow("no progress for "+why.Span(fromSeconds(e.Seconds))+": ") + message +
			after("; what to do: ", OneLine(e.Remedy))
	case event.StallOver:
		return "progress again after " + why.Span(fromSeconds(e.Seconds))
	case event.Silent:
		return s.Yellow("does not answer: ") + message
	case event.Answers:
		return "answers again"
	case event.Paused:
		return s.Yellow("paused") + ": recipe resume continues it"
	case event.Resumed:
		return "resumed after " + why.Span(fromSeconds(e.Seconds))
	case event.Alert:
		return s.Yellow("alert "+e.Name+": ") + message
	case event.AlertOver:
		return "alert " + e.Name + " is over"
	case event.Evaluation:
		return evaluationEvent(s, e)
	case event.Operation:
		return e.Action + after(": ", message)
	case event.Output:
		return s.Bold("output") + " " + Output(e)
	default:
		return ""
	}
}

// Severity orders the levels of log lines; ok is false for an unknown level.
func Severity(level string) (severity int, ok bool) {
	severity = slices.Index([]string{"debug", "info", "warn", "error"}, level)
	return severity, severity >= 0
}

// SeverityOf is that of an event: failures are errors, restarts and stalls warnings.
func SeverityOf(e event.Event) int {
	level := "info"
	switch {
	case e.Type == event.Restart || e.Type == event.Stalled || e.Type == event.Silent:
		level = "warn"
	case e.Phase == "failed":
		level = "error"
	case e.Level != "":
		level = e.Level
	}
	severity, _ := Severity(level)
	return severity
}

func after(separator, text string) string {
	if text == "" {
		return ""
	}
	return separator + text
}

func measurements(m map[string]float64) string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	for i, name := range names {
		names[i] = OneLine(name) + " " + Number(m[name])
	}
	return strings.Join(names, ", ")
}

// Printer writes events as plain lines, one after the other. It leaves out what a reader has just read: progress, of
// which metrics say the same and more, and a phase that the block was in already, and what only a plugin's author wants
// to know (--json has it all).
type Printer struct {
	Debug bool // prints lines of that level, too
	snap  snapshot.Snapshot
}

// Print writes the line of an event, when it has one.
func (p *Printer) Print(w io.Writer, s Style, e event.Event) error {
	if e.Type == event.Phase {
		again := p.snap.SamePhase(e)
		if p.snap.Apply(e); again {
			return nil
		}
	}
	text := p.Line(s, e)
	if text == "" {
		return nil
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

// Line is the line of an event; "" when it has none. That of a phase depends on the phase before, too: see Print.
func (p *Printer) Line(s Style, e event.Event) string {
	if e.Type == event.Progress || e.Level == "debug" && !p.Debug {
		return ""
	}
	return Line(s, e)
}
