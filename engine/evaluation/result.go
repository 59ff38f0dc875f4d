package evaluation

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk"
)

// ResultVersion is the `v` of a result.
const ResultVersion = 1

// Result is what one evaluation of a run measured, of one policy version. It is written when the evaluation is
// complete, beside the file of its scores.
type Result struct {
	V           int       `json:"v"`
	Name        string    `json:"name"` // of the evaluation block
	Environment string    `json:"environment"`
	Settings    string    `json:"settings"`       // digest of the environment's attributes
	Due         int64     `json:"due"`            // optimizer step for which it was due
	Step        int64     `json:"step"`           // of the weights that answered
	Version     int64     `json:"policy_version"` // that answered
	Time        time.Time `json:"time"`           // when it was complete
	Seconds     float64   `json:"seconds"`        // that it took, in which weight updates waited
	Samples     int       `json:"samples"`
	Temperature float64   `json:"temperature"`
	Seed        int64     `json:"seed"`
	Pass        float64   `json:"pass"`
	Tokens      int       `json:"tokens"` // that were sampled
	Asked       int       `json:"asked"`  // tasks, those without a score included
	Summary
	// Baseline are the changes since the first evaluation of the run; nil: it is the first.
	Baseline []Comparison `json:"baseline,omitempty"`
	// BaselineStep is the step of that; only with Baseline.
	BaselineStep int64  `json:"baseline_step,omitempty"`
	Scores       string `json:"scores_file"`              // relative to the run directory
	Record       string `json:"samples_folder,omitempty"` // relative to the run directory
}

// Folder is where the results of an evaluation block are, in a run directory.
func Folder(runDir, name string) string { return filepath.Join(runDir, "evaluations", name) }

// ScoresFile is the name of the file of scores of an evaluation that was due at a step.
func ScoresFile(due int64) string { return fmt.Sprintf("step_%d.jsonl", due) }

// ResultFile is the name of the file of its result.
func ResultFile(due int64) string { return fmt.Sprintf("step_%d.json", due) }

// Scored are the completions that have a score. What failed tells nothing of the policy, so it is no answer that did
// not pass.
func Scored(results []sdk.TaskScore) []sdk.TaskScore {
	out := make([]sdk.TaskScore, 0, len(results))
	for _, t := range results {
		if t.Failed = nil; len(t.Scores) > 0 {
			out = append(out, t)
		}
	}
	return out
}

// Summarized fills in what the tasks come to: estimates over those that have a score, and the failures, counted.
func (r *Result) Summarized(results []sdk.TaskScore, passAt []int) error {
	r.Asked, r.Failed, r.Reasons, r.Tokens = len(results), 0, nil, 0
	for _, t := range results {
		for _, c := range t.Completions {
			r.Tokens += c.Tokens
		}
		for _, why := range t.Failed {
			if r.Reasons == nil {
				r.Reasons = map[string]int{}
			}
			r.Failed++
			r.Reasons[why]++
		}
	}
	failed, reasons := r.Failed, r.Reasons
	scored := Scored(results)
	if len(scored) == 0 {
		return fmt.Errorf("no completion of %d tasks has a score", len(results))
	}
	s, err := Summarize(scored, nil, r.Pass)
	if err != nil {
		return err
	}
	r.Summary = s
	r.Failed, r.Reasons = failed, reasons
	for _, k := range passAt {
		var values []float64
		for _, t := range scored {
			if v, ok := PassAt(t, k, r.Pass); ok {
				values = append(values, v)
			}
		}
		if len(values) > 0 {
			r.Summary.PassAt = append(r.Summary.PassAt, At{k, Proportion(values)})
		}
	}
	return nil
}

// Since adds the changes since an earlier evaluation of the same tasks.
func (r *Result) Since(first *Result, before, after []sdk.TaskScore) {
	r.BaselineStep = first.Step
	add := func(metric string, value func(sdk.TaskScore) (float64, bool)) {
		if c, ok := Compare(metric, before, after, value); ok {
			r.Baseline = append(r.Baseline, c)
		}
	}
	for _, at := range r.Summary.PassAt {
		add(decode.PassName(at.K), func(t sdk.TaskScore) (float64, bool) { return PassAt(t, at.K, r.Pass) })
	}
	add("score", MeanScore)
}

// Comparable reports whether two results are of the same tasks, drawn and judged in the same way.
func (r *Result) Comparable(o *Result) bool {
	return r.Environment == o.Environment && r.Settings == o.Settings && r.Samples == o.Samples &&
		r.Temperature == o.Temperature && r.Seed == o.Seed && r.Pass == o.Pass
}

// Value is a number of the result by its name: pass@K or score.
func (r *Result) Value(name string) (Estimate, bool) {
	if name == "score" {
		return r.Score, true
	}
	for _, at := range r.Summary.PassAt {
		if decode.PassName(at.K) == name {
			return at.Estimate, true
		}
	}
	return Estimate{}, false
}

// Main is the number that stands for the result: pass@k of the smallest k, else the score.
func (r *Result) Main() string {
	if len(r.Summary.PassAt) > 0 {
		return decode.PassName(r.Summary.PassAt[0].K)
	}
	return "score"
}

// Change is the change of a number since the baseline; nil: there is none.
func (r *Result) Change(name string) *Comparison {
	for i := range r.Baseline {
		if r.Baseline[i].Metric == name {
			return &r.Baseline[i]
		}
	}
	return nil
}

// Metrics are the numbers of the result by their names within the evaluation.
func (r *Result) Metrics() map[string]float64 {
	out := map[string]float64{"score": r.Score.Mean, "tasks": float64(r.Tasks), "failed": float64(r.Failed),
		"seconds": r.Seconds}
	for _, at := range r.Summary.PassAt {
		name := decode.PassName(at.K)
		out[name], out[name+"/low"], out[name+"/high"] = at.Mean, at.Low, at.High
	}
	for _, c := range r.Baseline {
		out[c.Metric+"/change"] = c.Change
	}
	for name, e := range r.Summary.Metrics {
		out["metrics/"+name] = e.Mean
	}
	return out
}

// String is the result in one line.
func (r *Result) String() string {
	var b strings.Builder
	name := r.Main()
	v, _ := r.Value(name)
	if c := r.Change(name); c != nil {
		fmt.Fprintf(&b, "%s %s → %s, %+.3g ± %.2g", name, figure(c.Before), figure(c.After), c.Change, c.Margin())
	} else {
		fmt.Fprintf(&b, "%s %s (%s to %s)", name, figure(v.Mean), figure(v.Low), figure(v.High))
	}
	fmt.Fprintf(&b, ", %s", plural(r.Tasks, "task"))
	if r.Failed > 0 {
		fmt.Fprintf(&b, ", %s left out", plural(r.Failed, "failed completion"))
	}
	return b.String()
}

func figure(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// Save writes the result, whole or not at all.
func (r *Result) Save(folder string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write the result of evaluation %s: %w", r.Name, err)
	}
	path := filepath.Join(folder, ResultFile(r.Due))
	if err := renameio.WriteFile(path, append(data, '\n'), 0o600, renameio.WithTempDir(folder)); err != nil {
		return fmt.Errorf("write the result of evaluation %s: %w", r.Name, err)
	}
	return nil
}
