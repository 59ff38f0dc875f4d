// Package evaluated has the results of a run's evaluation blocks where a trainer finds them: in a file beside its
// checkpoints. The engine writes it, and the trainer keeps its best checkpoints by it. recipe_sdk/evaluated.py reads it
// in Python.
package evaluated

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/recipe-rl/recipe/internal/regular"
)

const (
	// FileName is the name of the file in the folder of a trainer's checkpoints.
	FileName = "evaluations.json"
	// Version is the `v` of the file.
	Version = 1
	// Waiting is how many checkpoints stay at most because their evaluation is not finished. Checkpoints that stay for
	// another reason do not count. Inference holds the weights of one evaluation at a time, and the trainer is at most two
	// weight updates ahead.
	Waiting = 2

	// Prefix begins the names of the metrics of evaluations: evaluation/NAME/METRIC.
	Prefix = "evaluation/"

	limit = 64 << 20
)

// File is the content of the file.
type File struct {
	V           int          `json:"v"`
	Evaluations []Evaluation `json:"evaluations"` // by name
}

// Evaluation is one evaluation block: when it is due, and its results.
type Evaluation struct {
	Name   string `json:"name"`
	Metric string `json:"metric"` // number that stands for a result
	Every  int64  `json:"every"`  // optimizer steps; 0: only at the start and the end
	// Period is the number of steps between weight updates. An evaluation that is due between two updates evaluates the
	// weights of the earlier one.
	Period int64 `json:"period"`
	// Done is the newest step for which an evaluation was due and is finished, with or without a result; -1: none.
	Done    int64    `json:"done"`
	Results []Result `json:"results"` // by step
}

// Result is one complete evaluation.
type Result struct {
	Due     int64              `json:"due"`  // step for which it was due
	Step    int64              `json:"step"` // of the weights that answered
	Version int64              `json:"policy_version"`
	Metrics map[string]float64 `json:"metrics"`
}

// Write writes the file, whole or not at all.
func (f File) Write(folder string) error {
	f.V = Version
	slices.SortFunc(f.Evaluations, func(a, b Evaluation) int { return cmp.Compare(a.Name, b.Name) })
	data, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("write the results of evaluations: %w", err)
	}
	path := filepath.Join(folder, FileName)
	if err := renameio.WriteFile(path, append(data, '\n'), 0o600, renameio.WithTempDir(folder)); err != nil {
		return fmt.Errorf("write the results of evaluations: %w", err)
	}
	return nil
}

// Remove removes the file.
func Remove(folder string) error {
	if err := os.Remove(filepath.Join(folder, FileName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove results of evaluations that the recipe no longer has: %w", err)
	}
	return nil
}

// Read reads the file.
func Read(folder string) (*File, error) {
	path := filepath.Join(folder, FileName)
	data, err := regular.ReadFile(path, limit)
	if err != nil {
		return nil, err
	}
	var f File
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&f); err != nil {
		return nil, fmt.Errorf("%s has no results of evaluations: %w", path, err)
	}
	if f.V != Version {
		return nil, fmt.Errorf("%s has format version %d; this program reads version %d", path, f.V, Version)
	}
	return &f, nil
}

// Split is the name of the evaluation and of its number in the name of a metric; number empty: the one that stands for
// a result. False: it is not the metric of an evaluation.
func Split(metric string) (name, number string, ok bool) {
	rest, ok := strings.CutPrefix(metric, Prefix)
	if !ok {
		return "", "", false
	}
	name, number, _ = strings.Cut(rest, "/")
	return name, number, name != ""
}

// of is the evaluation of a metric, and the name of its number.
func (f *File) of(metric string) (*Evaluation, string, error) {
	name, number, _ := Split(metric)
	i := slices.IndexFunc(f.Evaluations, func(e Evaluation) bool { return e.Name == name })
	if i < 0 {
		return nil, "", fmt.Errorf("%s has no evaluation %s", FileName, name)
	}
	return &f.Evaluations[i], cmp.Or(number, f.Evaluations[i].Metric), nil
}

// value is a number of the result of a step.
func (e *Evaluation) value(step int64, number string) (float64, bool) {
	for _, r := range slices.Backward(e.Results) {
		if r.Step == step {
			v, ok := r.Metrics[number]
			return v, ok
		}
	}
	return 0, false
}

// awaited reports whether the evaluation of a step is due and not finished.
func (e *Evaluation) awaited(step int64) bool {
	period := max(1, e.Period)
	if e.Every <= 0 || step <= e.Done || step <= 0 || step%period != 0 {
		return false
	}
	// Each multiple of every is due at the newest step up to it at which inference gets weights, the first at the first.
	first := step - 1
	if step == period {
		first = 0
	}
	return (step+period-1)/e.Every > first/e.Every
}

// Best is the checkpoint with the best result.
type Best struct {
	Metric string  `json:"metric"` // evaluation/NAME/METRIC
	Step   int64   `json:"step"`
	Value  float64 `json:"value"`
}

// Best is the best of the steps by a metric, the newest of equal ones; false: none has a result.
func (f *File) Best(metric string, steps []int64) (Best, bool) {
	e, number, err := f.of(metric)
	if err != nil {
		return Best{}, false
	}
	ranked := e.ranked(number, steps)
	if len(ranked) == 0 {
		return Best{}, false
	}
	v, _ := e.value(ranked[0], number)
	return Best{Prefix + e.Name + "/" + number, ranked[0], v}, true
}

// ranked sorts the steps that have a result: the best first, and of equal ones the newest first.
func (e *Evaluation) ranked(number string, steps []int64) []int64 {
	values := map[int64]float64{}
	var out []int64
	for _, s := range steps {
		if v, ok := e.value(s, number); ok {
			values[s], out = v, append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b int64) int { return cmp.Or(cmp.Compare(values[b], values[a]), cmp.Compare(b, a)) })
	return out
}

// Keep returns the steps of the checkpoints that stay: the best ones of all by a metric, and of others the ones whose
// evaluation is not finished. All has the step of each checkpoint; others leaves out checkpoints that stay for another
// reason. Both are ascending. Where the results cannot be read there is a warning, and what was kept before stays.
func Keep(folder, metric string, all, others []int64, best int) (kept []int64, warning string) {
	f, err := Read(folder)
	var e *Evaluation
	number := ""
	if err == nil {
		e, number, err = f.of(metric)
	}
	if err != nil { // the oldest are those that were kept for their results
		return others[:min(len(others), best+Waiting)], fmt.Sprintf("it is not known which checkpoint is the best by %s: "+
			"%v", metric, err)
	}
	ranked := e.ranked(number, all)
	kept = slices.Clone(ranked[:min(best, len(ranked))])
	var waiting []int64
	for _, s := range others {
		if e.awaited(s) {
			waiting = append(waiting, s)
		}
	}
	if given := len(waiting) - Waiting; given > 0 {
		warning = fmt.Sprintf("the checkpoint of step %d is not kept any longer for evaluation %s, which is not finished: "+
			"at most %d wait for it", waiting[given-1], e.Name, Waiting)
		waiting = waiting[given:]
	}
	return append(kept, waiting...), warning
}
