package view

import (
	"bufio"
	"fmt"
	"io"

	"github.com/recipe-rl/recipe/engine/evaluation"
)

// Evaluations are the results of one evaluation block of a run.
type Evaluations struct {
	Name    string               `json:"name"`
	Results []*evaluation.Result `json:"results"`
	// Change is what lies between the first result and another; nil: there is one result.
	Change *evaluation.Pair `json:"change,omitempty"`
}

// EvaluationResults shows them, with at most so many tasks that were solved once, of each direction.
func EvaluationResults(out io.Writer, s Style, all []Evaluations, flips int) error {
	w := bufio.NewWriter(out)
	for i, e := range all {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, s.Bold(OneLine(e.Name)))
		rows := [][]Cell{Cells("  step", "tasks", "value", "95 % interval", "since the baseline", "failed", "seconds")}
		for _, r := range e.Results {
			name := r.Main()
			v, _ := r.Value(name)
			change := ""
			if c := r.Change(name); c != nil {
				change = fmt.Sprintf("%+.3f ± %.2g", c.Change, c.Margin())
			}
			rows = append(rows, Cells(fmt.Sprintf("  %d", r.Step), fmt.Sprint(r.Tasks),
				fmt.Sprintf("%s %.3f", name, v.Mean), fmt.Sprintf("%.3f to %.3f", v.Low, v.High), change,
				fmt.Sprint(r.Failed), fmt.Sprintf("%.1f", r.Seconds)))
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
	for _, solved := range []bool{true, false} {
		title, paint := "solved by the later one alone", s.Green
		if !solved {
			title, paint = "solved by the earlier one alone", s.Red
		}
		var of []evaluation.Flip
		for _, f := range p.Flips {
			if f.Solved == solved {
				of = append(of, f)
			}
		}
		fmt.Fprintf(w, "  %s: %d\n", title, len(of))
		for _, f := range of[:min(flips, len(of))] {
			fmt.Fprintf(w, "    task %d %s: %s → %s\n", f.Task, quote(brief(f.Prompt)), quote(brief(f.Before)),
				paint(quote(brief(f.After))))
		}
	}
}
