package view

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/engine/printable"
	"github.com/recipe-rl/recipe/engine/snapshot"
	"github.com/recipe-rl/recipe/sdk"
)

// head names the columns of the table.
var head = []string{"BLOCK", "PHASE", "STEP", "REWARD", "TOKENS/S", "VERSION", ""}

// Phase returns how the name of a phase is painted.
func (s Style) Phase(phase string) func(string) string {
	switch sdk.Phase(phase) {
	case sdk.Ready, sdk.Completed:
		return s.Green
	case sdk.Failed:
		return s.Red
	case sdk.Degraded, sdk.Draining:
		return s.Yellow
	case sdk.Pending, sdk.Prepared, sdk.Stopped:
		return s.Dim
	default:
		switch name, _, _ := strings.Cut(phase, " "); name {
		case dead:
			return s.Red
		case alive, unknown:
			return s.Yellow
		}
		return s.Cyan
	}
}

// BlockTable lays a run out as a table, a line a block. Limit bounds the width of a line; 0 is no bound.
func BlockTable(s Style, snap *snapshot.Snapshot, limit int) []string {
	rows := [][]Cell{Cells(head...)}
	for i := range rows[0] {
		rows[0][i].Paint = s.Bold
		rows[0][i].Right = i >= 2 && i <= 5
	}
	for _, a := range snap.Addresses() {
		blk := snap.Blocks[a]
		rows = append(rows, []Cell{
			{Text: a},
			{Text: OneLine(blk.Phase), Paint: s.Phase(blk.Phase)},
			{Text: Steps(blk), Right: true},
			{Text: Metric(blk, Rewards()...), Right: true},
			{Text: Metric(blk, Speeds()...), Right: true},
			{Text: version(blk.Version), Right: true},
			{Text: remark(blk), Paint: s.Dim},
		})
	}
	return Rows(rows, limit)
}

// Steps returns how far a job is: 3/10, or 3 where the end is unknown.
func Steps(b *snapshot.Block) string {
	switch {
	case b.Total > 0:
		return fmt.Sprintf("%d/%d", b.Step, b.Total)
	case b.Step > 0:
		return fmt.Sprint(b.Step)
	default:
		return ""
	}
}

// Metric returns the newest value of the first of these metrics that a block has reported; "" when it has none, or when
// its process does not answer.
func Metric(b *snapshot.Block, names ...string) string {
	for _, name := range names {
		if v, ok := b.Fresh()[name]; ok {
			return Number(v)
		}
	}
	return ""
}

// Number writes a measurement with three significant digits or so, and large ones whole up to ten million.
func Number(v float64) string {
	switch abs := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return fmt.Sprint(v)
	case abs >= 1e7: // bytes, most often: all digits would not fit a column
		return fmt.Sprintf("%.2e", v)
	case abs >= 100:
		return fmt.Sprintf("%.0f", v)
	case abs >= 10:
		return fmt.Sprintf("%.1f", v)
	case abs >= 0.01 || v == 0:
		return fmt.Sprintf("%.3f", v)
	default:
		return fmt.Sprintf("%.2e", v)
	}
}

func version(v int64) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprint(v)
}

func remark(b *snapshot.Block) string {
	var parts []string
	if b.Restarts > 0 {
		parts = append(parts, fmt.Sprintf("restarted %d×", b.Restarts))
	}
	if !b.Silent.IsZero() {
		parts = append(parts, "its process has not answered since "+b.Silent.Local().Format(time.TimeOnly))
	}
	if b.Message != "" {
		parts = append(parts, OneLine(b.Message))
	}
	return strings.Join(parts, "; ")
}

// OneLine makes text fit a line of a table or a log: no line breaks, and nothing that a terminal would obey.
func OneLine(text string) string { return strings.TrimSpace(oneLine(text)) }

func oneLine(text string) string {
	return printable.Text(strings.NewReplacer("\n", " ", "\t", " ", "\r", " ").Replace(text))
}

// Status writes the table of blocks with a line above it that states the run's state. Now is for how long it has
// run.
func Status(w io.Writer, s Style, name, status string, snap *snapshot.Snapshot, now time.Time) error {
	paint := s.Cyan
	switch status {
	case "completed":
		paint = s.Green
	case "failed":
		paint = s.Red
	}
	line := s.Bold(OneLine(name)) + ": " + paint(OneLine(status))
	if !snap.Started.IsZero() {
		end := snap.Ended
		if end.IsZero() {
			end = now
		}
		line += ", " + Span(end.Sub(snap.Started))
	}
	if snap.Version > 0 {
		line += fmt.Sprintf(", policy version %d", snap.Version)
	}
	if snap.Message != "" {
		line += ", " + OneLine(snap.Message)
	}
	limit := 0
	if s.Terminal {
		limit = s.Width
	}
	lines := append([]string{line, ""}, BlockTable(s, snap, limit)...)
	if results := EvaluationLines(s, snap); len(results) > 0 {
		lines = append(append(lines, ""), results...)
	}
	if still := StallLines(s, snap, 0, now); len(still) > 0 {
		lines = append(append(lines, ""), still...)
	}
	for _, a := range snap.Addresses() {
		blk := snap.Blocks[a]
		if blk.Phase != string(sdk.Failed) || blk.Remedy == "" && limit == 0 { // the table has not cut it off
			continue
		}
		if lines = append(lines, "", s.Red(OneLine(a))+": "+blk.Message); blk.Remedy != "" {
			lines = append(lines, "  "+s.Dim("→")+" "+blk.Remedy)
		}
	}
	_, err := io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return err
}

// Span writes a duration as people say it: 48s, 12m05s, 3h04m, 2d03h.
func Span(d time.Duration) string {
	d = d.Round(time.Second)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
	}
}
