package view

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/snapshot"
	"github.com/recipe-rl/recipe/engine/why"
	"github.com/recipe-rl/recipe/sdk"
)

// Why prints the chain of waits of a run, down to the cause, and the activities of every block.
func Why(w io.Writer, s Style, d *why.Document) error {
	var b strings.Builder
	switch {
	case !d.Engine:
		whyFromLog(&b, s, d)
	case len(d.Stalls) == 0:
		fmt.Fprintf(&b, "%s\n", s.Green(fmt.Sprintf("No block has been without progress for %s or longer.",
			why.Span(fromSeconds(d.After)))))
	}
	for _, stall := range d.Stalls {
		fmt.Fprintf(&b, "%s\n", s.Red(fmt.Sprintf("%s: no progress for %s", stall.Root, why.Span(fromSeconds(stall.Idle)))))
		for i, l := range stall.Chain {
			fmt.Fprintf(&b, "%s%s\n", strings.Repeat("  ", i+1), l.Text)
		}
		if stall.Cycle {
			b.WriteString(strings.Repeat("  ", len(stall.Chain)+1) +
				"each waits for the next one, and the last for the first\n")
		}
		if len(stall.Others) > 0 {
			names := make([]string, len(stall.Others))
			for i, a := range stall.Others {
				names[i] = a.String()
			}
			fmt.Fprintf(&b, "  for the same reason: %s\n", strings.Join(names, ", "))
		}
		fmt.Fprintf(&b, "  what to do: %s\n", stall.Remedy)
	}
	if len(d.Blocks) > 0 {
		b.WriteString("\n")
		for _, line := range whyBlocks(s, d.Blocks) {
			b.WriteString(line + "\n")
		}
	}
	for _, t := range d.Stacks {
		fmt.Fprintf(&b, "\n%s\n", s.Bold(fmt.Sprintf("%s: %s (pid %d)", t.Address, t.Program, t.PID)))
		b.WriteString(indent(strings.TrimRight(t.Text+t.Error, "\n"), "  ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func indent(text, by string) string { return by + strings.ReplaceAll(text, "\n", "\n"+by) }

func fromSeconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func whyFromLog(b *strings.Builder, s Style, d *why.Document) {
	if len(d.Last) == 0 {
		b.WriteString("No engine is running for this run; the last one had reported no stall.\n")
		return
	}
	fmt.Fprintf(b, "No engine is running for this run. The last reported waits, at %s:\n",
		d.LastTime.Local().Format(time.DateTime))
	for _, text := range d.Last {
		fmt.Fprintf(b, "  %s\n", s.Red(text))
	}
}

// whyBlocks lists the activities of every block.
func whyBlocks(s Style, blocks []why.BlockDocument) []string {
	rows := [][]Cell{{{Text: "BLOCK", Paint: s.Bold}, {Text: "PHASE", Paint: s.Bold}, {Text: "DOES", Paint: s.Bold}}}
	for _, d := range blocks {
		texts := Doings(d)
		for i, text := range texts {
			row := []Cell{{Text: ""}, {Text: ""}, {Text: text}}
			if i == 0 {
				row[0].Text, row[1] = d.Address.String(), Cell{Text: string(d.Phase), Paint: s.Phase(string(d.Phase))}
			}
			rows = append(rows, row)
		}
	}
	return Rows(rows, 0)
}

// Doings returns what a block does or waits for, an activity a line.
func Doings(d why.BlockDocument) []string {
	var out []string
	for _, l := range d.Activities {
		out = append(out, strings.TrimPrefix(strings.TrimPrefix(l.Text, d.Address.String()), ": "))
	}
	switch {
	case len(out) > 0:
	case d.Phase.Over(), d.Phase == sdk.Pending, d.Phase == sdk.Preparing, d.Phase == sdk.Starting, d.Phase == sdk.Loading:
		out = []string{OneLine(d.Message)}
	case !d.Reports:
		out = []string{"does not report"}
	default:
		out = []string{"idle"}
	}
	for i := range out {
		out[i] = strings.TrimSpace(out[i])
	}
	return out
}

// WhyFromLog returns the last report of an engine, for a run that has no engine now.
func WhyFromLog(snap *snapshot.Snapshot, now time.Time) *why.Document {
	d := &why.Document{FormatVersion: why.FormatVersion, Time: now.UTC(), After: why.DefaultAfter.Seconds(),
		Stalls: []why.StallDocument{}}
	for _, e := range stallsOf(snap) {
		d.Last = append(d.Last, OneLine(e.Message))
		if d.LastTime == nil || e.Time.After(*d.LastTime) {
			d.LastTime = &e.Time
		}
	}
	return d
}

// stallsOf lists the stalls, sorted by address.
func stallsOf(snap *snapshot.Snapshot) []event.Event {
	roots := make([]string, 0, len(snap.Stalls))
	for root := range snap.Stalls {
		roots = append(roots, root)
	}
	slices.Sort(roots)
	out := make([]event.Event, len(roots))
	for i, root := range roots {
		out[i] = snap.Stalls[root]
	}
	return out
}

// StallLines describes each stall in one line. Limit bounds the width of a line; 0: no bound.
func StallLines(s Style, snap *snapshot.Snapshot, limit int, now time.Time) []string {
	var rows [][]Cell
	for _, e := range stallsOf(snap) {
		idle, verb := fromSeconds(e.Seconds), "made no progress for "
		if snap.Ended.IsZero() {
			idle, verb = idle+max(0, now.Sub(e.Time)), "no progress for "
		}
		rows = append(rows, []Cell{{Text: verb + why.Span(idle) + ": " + OneLine(e.Message), Paint: s.Yellow}})
	}
	return Rows(rows, limit)
}
