// Package evaluationtest writes results of evaluations into run directories, for tests of what reads them.
package evaluationtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/recipe-rl/recipe/engine/evaluation"
	"github.com/recipe-rl/recipe/sdk"
)

// Task is a task with one completion, which passes with a score of 1.
func Task(number int, prompt, text string, score float64) sdk.TaskScore {
	return sdk.TaskScore{Task: number, Digest: prompt, Prompt: prompt, Scores: []float64{score},
		Completions: []sdk.EvaluatedCompletion{{Text: text, Score: &score, Tokens: 1}}}
}

// Write writes the result of an evaluation that was due at a step, with the change since first; nil: it is the first.
func Write(t testing.TB, runDir, name string, step int64, first *evaluation.Result,
	tasks ...sdk.TaskScore) *evaluation.Result {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	folder := evaluation.Folder(runDir, name)
	must(os.MkdirAll(folder, 0o700))
	path := filepath.Join(folder, evaluation.ScoresFile(step))
	file, err := evaluation.OpenFile(t.Context(), path, evaluation.Header{Environment: "environment.x.y", Version: step,
		Samples: 1})
	must(err)
	for _, task := range tasks {
		must(file.Add(task))
	}
	must(file.Close())
	r := &evaluation.Result{V: evaluation.ResultVersion, Name: name, Environment: "environment.x.y", Due: step,
		Step: step, Version: step, Samples: 1, Pass: 1, Seconds: 1,
		Scores: filepath.Join(evaluation.Folder("", name), evaluation.ScoresFile(step))}
	must(r.Summarized(tasks, []int{1}))
	if first != nil {
		before, _, err := evaluation.ReadScores(filepath.Join(runDir, first.Scores))
		must(err)
		r.Since(first, before, tasks)
	}
	must(r.Save(folder))
	return r
}
