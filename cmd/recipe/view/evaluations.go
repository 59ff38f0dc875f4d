package view

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/snapshot"
	"github.com/recipe-rl/recipe/schema/decode"
)

// plannedEvaluations shows what an apply would evaluate.
func plannedEvaluations(w io.Writer, s Style, all []plan.Evaluation) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(w, s.Bold("Evaluations:"))
	for _, e := range all {
		tasks := "all held-out tasks"
		if e.Tasks > 0 {
			tasks = count(e.Tasks, "held-out task")
		}
		fmt.Fprintf(w, "  %s: %s of %s, %s of each, %s\n", e.Name, tasks, e.Environment, count(e.Samples, "completion"),
			e.When)
		number := count(e.Count, "evaluation")
		if e.Past > 0 {
			number += fmt.Sprintf(" to come, %d done", e.Past)
		}
		switch {
		case e.Rollouts > 0:
			fmt.Fprintf(w, "    %s, at most %s; %s\n", number, count(e.Rollouts, "completion"), e.Cost)
		case e.Count > 0:
			fmt.Fprintf(w, "    %s; %s\n", number, e.Cost)
		case e.Past > 0:
			fmt.Fprintf(w, "    no further evaluation: the trainer has done its steps\n")
		default:
			fmt.Fprintf(w, "    %s\n", e.Cost)
		}
		if e.Gate != "" {
			fmt.Fprintf(w, "    gate: %s\n", e.Gate)
		}
	}
	fmt.Fprintln(w)
}

// evaluationEvent is an event of an evaluation in words.
func evaluationEvent(s Style, e event.Event) string {
	text := fmt.Sprintf("evaluation %s, step %d: %s", s.Bold(OneLine(e.Name)), e.Step, OneLine(e.Message))
	if e.State == event.EvaluationFailed {
		text = s.Red("error: ") + text
	}
	return text
}

// EvaluationLines are the state of each evaluation block of a run, and the best checkpoint of each trainer that keeps
// them by one, one a line.
func EvaluationLines(s Style, snap *snapshot.Snapshot) []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(snap.Evaluations)) {
		e := snap.Evaluations[name]
		var parts []string
		if e.Last.Type != "" {
			parts = append(parts, fmt.Sprintf("%s (step %d)", OneLine(e.Last.Message), e.Last.Step))
		}
		if e.Now.State == event.EvaluationBegun && snap.Ended.IsZero() {
			parts = append(parts, s.Cyan(fmt.Sprintf("evaluating step %d", e.Now.Step)))
		}
		if e.Failed > 0 {
			parts = append(parts, s.Red(fmt.Sprintf("%d without a result", e.Failed)))
		}
		if len(parts) > 0 {
			lines = append(lines, s.Bold(OneLine(name))+": "+strings.Join(parts, "; "))
		}
	}
	for _, a := range snap.Addresses() {
		if b := snap.Blocks[a].Best; b != nil {
			lines = append(lines, s.Bold(OneLine(a))+": best checkpoint "+best(b))
		}
	}
	return lines
}

// onlyEvaluation reports whether metrics are all of an evaluation, which has an event of its own.
func onlyEvaluation(m map[string]float64) bool {
	for name := range m {
		if !strings.HasPrefix(name, decode.EvaluationPrefix) {
			return false
		}
	}
	return len(m) > 0
}

// StatusEvaluation is one evaluation block in a StatusDocument.
type StatusEvaluation struct {
	Name    string            `json:"name"`
	State   string            `json:"state"`            // of the newest: begun, done or failed
	Step    int64             `json:"step"`             // of the newest
	Results int               `json:"results"`          // so far
	Failed  int               `json:"failed,omitempty"` // without a result
	Result  *EvaluationResult `json:"result,omitempty"` // the newest
	First   *EvaluationResult `json:"baseline,omitempty"`
}

// EvaluationResult is one result in a StatusDocument.
type EvaluationResult struct {
	Step    int64              `json:"step"`
	Version int64              `json:"policy_version"`
	Text    string             `json:"text"`
	Metrics map[string]float64 `json:"metrics"`
	File    string             `json:"file"` // in the run directory
}

func statusEvaluations(snap *snapshot.Snapshot) []StatusEvaluation {
	var out []StatusEvaluation
	result := func(e event.Event) *EvaluationResult {
		if e.Type == "" {
			return nil
		}
		return &EvaluationResult{e.Step, e.Version, e.Message, e.Metrics, e.Path}
	}
	for _, name := range slices.Sorted(maps.Keys(snap.Evaluations)) {
		e := snap.Evaluations[name]
		out = append(out, StatusEvaluation{Name: name, State: e.Now.State, Step: e.Now.Step, Results: e.Done,
			Failed: e.Failed, Result: result(e.Last), First: result(e.Baseline)})
	}
	return out
}
