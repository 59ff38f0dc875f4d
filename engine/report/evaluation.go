package report

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"github.com/recipe-rl/recipe/engine/evaluation"
	"github.com/recipe-rl/recipe/engine/state"
)

const (
	maxResults = 500
	maxFlips   = 12 // of each direction
)

// evaluated is what an evaluation block measured.
type evaluated struct {
	Name    string
	Metric  string // of Results
	Curve   band
	Results []evaluatedStep
	Change  *evaluation.Pair
	Flips   []flips
	Error   string // why there is no Change
}

// evaluatedStep is one result.
type evaluatedStep struct {
	*evaluation.Result
	Value  evaluation.Estimate
	Change *evaluation.Comparison
	Best   bool // the checkpoint of this step is the best one
}

// flips are tasks that only one of two results solved.
type flips struct {
	Title string
	Count int
	Tasks []evaluation.Flip // the first of them
}

// band is a curve with the interval around it, as points of an SVG.
type band struct {
	Line, Area    string
	Best          string // x of the best checkpoint; empty: none
	Least, Most   float64
	Width, Height int
}

// evaluationsOf reads the results of the evaluation blocks of a run.
func evaluationsOf(dir state.Dir, rec *state.Run) ([]evaluated, error) {
	root, err := filepath.Abs(string(dir))
	if err != nil {
		return nil, fmt.Errorf("read the evaluations of the run: %w", err)
	}
	reader := evaluation.NewReader(root)
	names, err := reader.Names()
	if err != nil {
		return nil, err
	}
	var out []evaluated
	for _, name := range names {
		h, err := reader.History(name, evaluation.NewestResult)
		if len(h.Results) == 0 && err == nil {
			continue
		}
		e := evaluated{Name: name}
		if len(h.Results) > 0 {
			e = evaluationOf(h, rec)
		}
		if err != nil {
			e.Error = err.Error()
		}
		out = append(out, e)
	}
	return out, nil
}

func evaluationOf(h evaluation.History, rec *state.Run) evaluated {
	newest := h.Results[len(h.Results)-1]
	e := evaluated{Name: h.Name, Metric: newest.Main(), Change: h.Change}
	best := int64(-1)
	for _, b := range rec.Blocks {
		if b.Best != nil && b.Best.Evaluation() == h.Name {
			best = b.Best.Step
		}
	}
	for _, r := range h.Results[max(0, len(h.Results)-maxResults):] {
		if v, ok := r.Value(e.Metric); ok {
			e.Results = append(e.Results, evaluatedStep{r, v, r.Change(e.Metric), r.Step == best})
		}
	}
	e.Curve = bandOf(e.Results)
	if h.Change == nil {
		return e
	}
	gained, lost := h.Change.Split()
	e.Flips = []flips{{"solved by the later one alone", len(gained), gained[:min(maxFlips, len(gained))]},
		{"solved by the first one alone", len(lost), lost[:min(maxFlips, len(lost))]}}
	return e
}

// bandOf draws results by step. Fewer than two have no curve.
func bandOf(results []evaluatedStep) band {
	b := band{Width: chartWidth, Height: chartHeight, Least: math.Inf(1), Most: math.Inf(-1)}
	for _, r := range results {
		b.Least, b.Most = min(b.Least, r.Value.Low), max(b.Most, r.Value.High)
	}
	if len(results) < 2 || !finite(b.Most-b.Least) {
		return b
	}
	steps := make([]int64, len(results))
	for i, r := range results {
		steps[i] = r.Step
	}
	x := func(i int) string { return across(i, len(steps), steps[i], steps[0], steps[len(steps)-1]) }
	y := func(v float64) string { return up(v, b.Least, b.Most) }
	var line, upper, lower strings.Builder
	for i := range results {
		v := results[i].Value
		line.WriteString(x(i) + "," + y(v.Mean) + " ")
		upper.WriteString(x(i) + "," + y(v.High) + " ")
		if results[i].Best {
			b.Best = x(i)
		}
	}
	for i := len(results) - 1; i >= 0; i-- {
		lower.WriteString(x(i) + "," + y(results[i].Value.Low) + " ")
	}
	b.Line, b.Area = line.String(), upper.String()+lower.String()
	return b
}
