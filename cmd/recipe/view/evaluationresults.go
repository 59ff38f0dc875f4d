package view

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/recipe-rl/recipe/engine/evaluation"
	"github.com/recipe-rl/recipe/engine/state"
)

// measured is a step that an evaluation block measured.
type measured struct {
	name string
	step int64
}

// EvaluationResults shows the results of a run, with at most so many tasks that were solved once, of each direction.
func EvaluationResults(out io.Writer, s Style, run *state.Run, all []evaluation.History, flips int) error {
	bests := map[measured]string{}
	for a, b := range run.Blocks {
		if b.Best == nil {
			continue
		}
		bests[measured{b.Best.Evaluation(), b.Best.Step}] = "best checkpoint of " + OneLine(a.String())
	}
	w := bufio.NewWriter(out)
	for i, e := range all {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, s.Bold(OneLine(e.Name)))
		draw := intervals(e.Results)
		rows := [][]Cell{Cells("  step", "tasks", "value", "95 % interval", draw.scale, "since the baseline", "failed",
			"seconds", "")}
		for _, r := range e.Results {
			name := r.Main()
			v, _ := r.Value(name)
			change := ""
			if c := r.Change(name); c != nil {
				change = fmt.Sprintf("%+.3f ± %.2g", c.Change, c.Margin())
			}
			rows = append(rows, Cells(fmt.Sprintf("  %d", r.Step), fmt.Sprint(r.Tasks),
				fmt.Sprintf("%s %.3f", name, v.Mean), fmt.Sprintf("%.3f to %.3f", v.Low, v.High), draw.line(v), change,
				fmt.Sprint(r.Failed), fmt.Sprintf("%.1f", r.Seconds), bests[measured{e.Name, r.Step}]))
		}
		for _, line := range Rows(rows, 0) {
			fmt.Fprintln(w, line)
		}
		if e.Change != nil {
			pair(w, s, e.Change, flips)
		}
	}
	return w.Flush()
}

// EvaluationPairs shows what lies between the evaluations of two runs.
func EvaluationPairs(out io.Writer, s Style, pairs []*evaluation.Pair, flips int) error {
	w := bufio.NewWriter(out)
	for _, p := range pairs {
		fmt.Fprintf(w, "\n%s\n", s.Bold("evaluation "+OneLine(p.Name)))
		pair(w, s, p, flips)
	}
	return w.Flush()
}

func pair(w io.Writer, s Style, p *evaluation.Pair, flips int) {
	fmt.Fprintf(w, "  from step %d to step %d, task by task\n", p.Before.Step, p.After.Step)
	if p.Differ {
		fmt.Fprintln(w, s.Yellow("    warning: ")+"settings or files differ on which scores depend, such as the reward "+
			"function: not only the policy has changed")
	}
	if len(p.Changes) == 0 {
		fmt.Fprintln(w, "    they have no task in common")
	}
	for _, c := range p.Changes {
		fmt.Fprintf(w, "    %s %.3f → %.3f, %+.3f ± %.2g (%+.3f to %+.3f), %s\n", c.Metric, c.Before, c.After, c.Change,
			c.Margin(), c.Low, c.High, count(c.Tasks, "task"))
	}
	gained, lost := p.Split()
	for _, of := range []struct {
		title string
		flips []evaluation.Flip
		paint func(string) string
	}{{"solved by the later one alone", gained, s.Green}, {"solved by the earlier one alone", lost, s.Red}} {
		fmt.Fprintf(w, "  %s: %d\n", of.title, len(of.flips))
		for _, f := range of.flips[:min(flips, len(of.flips))] {
			fmt.Fprintf(w, "    task %d %s: %s → %s\n", f.Task, quote(brief(f.Prompt)), quote(brief(f.Before)),
				of.paint(quote(brief(f.After))))
		}
	}
}

// intervalWidth is the number of characters of the line on which intervals are drawn.
const intervalWidth = 24

// intervalLines draws intervals on lines of one scale.
type intervalLines struct {
	least, most float64
	scale       string // head of the column
}

// intervals makes the scale of all results: 0 to 1 where they lie within, else from the lowest to the highest end.
func intervals(results []*evaluation.Result) intervalLines {
	out := intervalLines{least: math.Inf(1), most: math.Inf(-1)}
	for _, r := range results {
		v, _ := r.Value(r.Main())
		out.least, out.most = min(out.least, v.Low), max(out.most, v.High)
	}
	if len(results) == 0 || out.least >= 0 && out.most <= 1 {
		out.least, out.most = 0, 1
	}
	low, high := fmt.Sprintf("%.3g", out.least), fmt.Sprintf("%.3g", out.most)
	out.scale = low + strings.Repeat(" ", max(1, intervalWidth-len(low)-len(high))) + high
	return out
}

// line draws the interval of an estimate, with a mark at its value.
func (l intervalLines) line(v evaluation.Estimate) string {
	at := func(x float64) int { // a file of another person may have any numbers
		part := (x - l.least) / (l.most - l.least)
		if !(part >= 0 && part <= 1) {
			return 0
		}
		return int(math.Round(part * (intervalWidth - 1)))
	}
	line := []rune(strings.Repeat("·", intervalWidth))
	for i := at(v.Low); i <= at(v.High); i++ {
		line[i] = '─'
	}
	line[at(v.Mean)] = '●'
	return string(line)
}
