package why

import (
	"fmt"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/sdk/kind"
)

// Sentence is a stall in one line: who waits for whom, down to the cause.
func (s Stall) Sentence() string {
	var parts []string
	for i := 0; i < len(s.Chain); i++ {
		l := s.Chain[i]
		if i+1 < len(s.Chain) {
			next := s.Chain[i+1]
			last := i+2 == len(s.Chain)
			switch {
			case last && next.Own() && next.Activity.Have == 0 && !s.Cycle:
				// the cause is more specific than what is waited for
				parts = append(parts, fmt.Sprintf("%s waits for %s: %s", l.Address, l.On, body(next)))
				i++
				continue
			case l.On.Kind == kind.Trajectories && next.Address == l.On && !next.Own() &&
				next.Activity.What == l.Activity.What && l.Address.Kind == kind.Trainer:
				// The queue is between trainer and environments: the trainer waits for its content.
				parts = append(parts, fmt.Sprintf("%s waits for %s%s", l.Address, l.Activity.What,
					after(": ", amount(next))))
				i++
				continue
			}
		}
		parts = append(parts, l.String())
	}
	text := strings.Join(parts, "; ")
	if s.Cycle {
		text += ": each waits for the next one"
	}
	return text
}

// String is the edge in words.
func (l Link) String() string {
	if l.Own() && l.Activity.On == "" {
		return fmt.Sprintf("%s: %s", l.Address, body(l))
	}
	if l.Own() { // it waits for something outside this run
		return fmt.Sprintf("%s waits for %s", l.Address, body(l))
	}
	return fmt.Sprintf("%s waits for %s: %s", l.Address, l.On, body(l))
}

// body describes the edge and how long it has made no progress.
func body(l Link) string {
	a := l.Activity
	text := a.What + after(": ", amount(l))
	switch {
	case a.Rest || l.Idle < time.Second:
	case a.Sign != "":
		text += fmt.Sprintf(", no %s for %s", a.Sign, Span(l.Idle))
	default:
		text += ", for " + Span(l.Idle)
	}
	return text + after("; ", a.Detail)
}

// amount describes how much of the expected amount is available.
func amount(l Link) string {
	if a := l.Activity; a.Want > 0 {
		return strings.TrimSpace(fmt.Sprintf("%d of %d %s", a.Have, a.Want, a.Unit)) + " available"
	}
	return ""
}

func after(separator, text string) string {
	if text == "" {
		return ""
	}
	return separator + text
}

// Remedy is what to do about it.
func (s Stall) Remedy() string {
	for i := len(s.Chain) - 1; i >= 0; i-- {
		if r := s.Chain[i].Activity.Remedy; r != "" {
			return r
		}
	}
	return fmt.Sprintf("recipe status --why --stacks shows the stacks of %s; recipe restart %s restarts it", s.Root,
		s.Root)
}

// Span is a duration in readable form.
func Span(d time.Duration) string {
	switch {
	case d < 10*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	}
	return fmt.Sprintf("%.1f h", d.Hours())
}
