package view

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/recipe-rl/recipe/engine/evaluation"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/sdk"
)

// Evaluation shows what an environment measured on demand, a metric a line.
func Evaluation(w io.Writer, s Style, e *run.Evaluation) error {
	if _, err := fmt.Fprintf(w, "%s, policy version %d\n", s.Bold(e.Address.String()), e.PolicyVersion); err != nil {
		return err
	}
	var rows [][]Cell
	for _, name := range slices.Sorted(maps.Keys(e.Metrics)) {
		rows = append(rows, Cells("  "+name, Number(e.Metrics[name])))
	}
	for _, line := range Rows(rows, 0) {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return completionsIn(w, s, e.Samples)
}

// completionsIn says where the completions of an evaluation are; folder empty: they are not recorded.
func completionsIn(w io.Writer, s Style, folder string) error {
	if folder == "" {
		return nil
	}
	_, err := fmt.Fprintln(w, s.Dim("  completions: recipe ui, or recipe trajectories show --dir "+folder))
	return err
}

// Scores are what the scores of held-out tasks come to.
type Scores struct {
	Environment string  `json:"environment"`
	Policy      string  `json:"policy"`
	Version     *int64  `json:"policy_version,omitempty"` // of a live run, when the evaluation began
	Samples     int     `json:"samples"`
	Temperature float64 `json:"temperature"`
	Pass        float64 `json:"pass"` // the least score that passes
	evaluation.Summary
	Record  string          `json:"samples_folder,omitempty"` // a record of the completions in the run directory
	Results []sdk.TaskScore `json:"results"`
}

// Show writes the estimates for people.
func (e Scores) Show(w io.Writer, s Style) error {
	of := ""
	if e.Version != nil {
		of = fmt.Sprintf(", policy version %d", *e.Version)
	}
	if _, err := fmt.Fprintf(w, "%s, answered by %s%s\n", s.Bold(e.Environment), OneLine(e.Policy), of); err != nil {
		return err
	}
	row := func(name string, v evaluation.Estimate) []Cell {
		return Cells("  "+name, fmt.Sprintf("%.3f", v.Mean), fmt.Sprintf("[%.3f, %.3f]", v.Low, v.High))
	}
	var rows [][]Cell
	for _, at := range e.PassAt {
		rows = append(rows, row(fmt.Sprintf("pass@%d", at.K), at.Estimate))
	}
	rows = append(rows, row("score", e.Score))
	for _, name := range slices.Sorted(maps.Keys(e.Metrics)) {
		rows = append(rows, row("metrics/"+name, e.Metrics[name]))
	}
	for _, line := range Rows(rows, 0) {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	if e.Failed > 0 {
		if err := e.showFailed(w, s); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%s\n%s\n",
		s.Dim(fmt.Sprintf("  %d tasks, %d completions each at temperature %g", e.Tasks, e.Samples, e.Temperature)),
		s.Dim(fmt.Sprintf("  a score of %g passes; 95 %% intervals over the tasks: Wilson's for values between 0 and 1, "+
			"else mean ± 1.96 standard errors", e.Pass)))
	if err == nil {
		err = completionsIn(w, s, e.Record)
	}
	return err
}

// mostReasons are as many as are shown.
const mostReasons = 5

// showFailed lists why completions have no score, the most frequent reason first.
func (e Scores) showFailed(w io.Writer, s Style) error {
	reasons := slices.SortedFunc(maps.Keys(e.Reasons), func(a, b string) int {
		return cmp.Or(cmp.Compare(e.Reasons[b], e.Reasons[a]), cmp.Compare(a, b))
	})
	lines := []string{fmt.Sprintf("  %d of %d completions have no score and count as not passed:", e.Failed,
		e.Tasks*e.Samples)}
	for _, why := range reasons[:min(len(reasons), mostReasons)] {
		lines = append(lines, fmt.Sprintf("    %d × %s", e.Reasons[why], oneLine(why)))
	}
	if more := len(reasons) - mostReasons; more > 0 {
		lines = append(lines, fmt.Sprintf("    and %d other reasons", more))
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(w, s.Yellow(line)); err != nil {
			return err
		}
	}
	return nil
}
