package live

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/snapshot"
)

// block is the page of one block: its state, its metrics, its log.
func (s *screen) block(width, height int) []string {
	b := s.run.snap.Blocks[s.selected]
	if b == nil {
		return []string{"no block is selected"}
	}
	phase := b.Phase
	if !b.Since.IsZero() {
		phase += " for " + view.Span(max(0, s.now.Sub(b.Since)))
	}
	if !b.Silent.IsZero() {
		phase += ", its process has not answered for " + view.Span(max(0, s.now.Sub(b.Silent))) + ": its metrics are old"
	}
	lines := []string{s.style.Cyan(view.OneLine(b.Address)) + " " + s.style.Phase(b.Phase)(phase)}
	for _, pair := range [][2]string{
		{"step", view.Steps(b)}, {"needs", strings.Join(s.needed(b), ", ")}, {"does", s.does(b)},
		{"what to do", b.Remedy}, {"checkpoint", b.Checkpoint.Path}, {"restarts", count(b.Restarts)},
	} {
		if pair[1] != "" {
			lines = append(lines, s.style.Dim(pair[0]+": ")+view.OneLine(pair[1]))
		}
	}
	columns := max(1, width/60)
	var cells []string
	for _, name := range metricsOf(b) {
		cells = append(cells, s.curve(name, 24, b.History[name], width/columns-2))
	}
	metrics := inColumns(cells, columns, width/columns-2)
	if room := max(0, height/2-len(lines)); len(metrics) > room {
		metrics = metrics[:room]
	}
	lines = append(lines, metrics...)
	room := height - len(lines)
	return append(lines, s.pane(s.logTitle(), width, room, s.log(s.selected, width, room-1))...)
}

// metricsOf names the metrics of a block in the order in which there is room for them: those that every run is judged
// by, those that change, and last those that have had one value only.
func metricsOf(b *snapshot.Block) []string {
	main := view.Headlines()
	rank := func(name string) int {
		if i := slices.Index(main, name); i >= 0 {
			return i
		}
		points := b.History[name].Points
		if slices.ContainsFunc(points, func(p snapshot.Point) bool { return p.Value != points[0].Value }) {
			return len(main)
		}
		return len(main) + 1
	}
	names := slices.Sorted(maps.Keys(b.History))
	slices.SortStableFunc(names, func(x, y string) int { return cmp.Compare(rank(x), rank(y)) })
	return names
}

func count(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func (s *screen) logTitle() string {
	if s.scroll > 0 {
		return fmt.Sprintf("log, %d lines back", s.scroll)
	}
	return "log, newest lines"
}

// log are the lines of a block, or of all, broken where they are longer than the screen.
func (s *screen) log(address string, width, height int) []string {
	height = max(height, 0)
	var out []string
	for _, e := range s.run.lines[address].last(height, s.scroll) {
		out = append(out, strings.Split(ansi.Wrap(s.logLine(e), width, " "), "\n")...)
	}
	return out[max(0, len(out)-height):]
}
