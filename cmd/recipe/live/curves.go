package live

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/snapshot"
)

// curves are the main curves of the selected trainer, or of the first one, in as many columns as there is room for.
func (s *screen) curves(width int) []string {
	trainer := s.trainer()
	if trainer == nil {
		return nil
	}
	columns := max(1, min(4, width/40))
	each := width/columns - 2
	var cells []string
	for _, curve := range []struct {
		label string
		names []string
	}{{"reward", view.Rewards()}, {"loss", view.Losses()}, {"tokens/s", view.Speeds()}, {"staleness", view.Lags()}} {
		if series := view.History(trainer, curve.names...); series != nil && len(series.Points) > 1 {
			cells = append(cells, s.curve(curve.label, 9, series, each))
		}
	}
	return inColumns(cells, columns, each)
}

func inColumns(cells []string, columns, width int) []string {
	var lines []string
	for i, c := range cells {
		if i%columns == 0 {
			lines = append(lines, "")
		}
		last := len(lines) - 1
		lines[last] += c + strings.Repeat(" ", max(0, width-ansi.StringWidth(c))+2)
	}
	return lines
}

// trainer is the selected block when it is a trainer, else the first trainer.
func (s *screen) trainer() *snapshot.Block {
	if view.IsTrainer(s.selected) && s.run.snap.Blocks[s.selected] != nil {
		return s.run.snap.Blocks[s.selected]
	}
	for _, a := range s.run.addresses() {
		if view.IsTrainer(a) {
			return s.run.snap.Blocks[a]
		}
	}
	return nil
}

// curve is one series in one line: its name, its newest value and its shape.
func (s *screen) curve(label string, labelWidth int, series *snapshot.Series, width int) string {
	label = ansi.Truncate(view.OneLine(label), labelWidth, "…")
	head := fmt.Sprintf("%s%s %9s ", label, strings.Repeat(" ", labelWidth-ansi.StringWidth(label)),
		view.Number(series.Last))
	room := width - labelWidth - 11
	if room < 4 {
		return head
	}
	return head + s.style.Green(view.Sparkline(series.Resample(min(room, 60))))
}
