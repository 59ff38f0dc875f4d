package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/evaluation"
	"github.com/recipe-rl/recipe/sdk"
)

// A task whose score fails is kept with its reason, the evaluation goes on, and --retry-failed asks that task alone.
func TestEvaluateGoesOnPastFailures(t *testing.T) {
	t.Parallel()
	w := newWords(t)
	w.write("words.py", `
import os
from pathlib import Path
from recipe_sdk import Completion, Environment, Task

class Words(Environment):
    """Answers of one character."""
    defaults = {"max_tokens": 2}

    def next(self) -> Task:
        return Task("12+34=")

    def score(self, task: Task, completion: Completion) -> float:
        if task.data == "judged" and not (self.context.folder / "judge").exists():
            raise ConnectionError("the judge is away")
        with open(self.context.folder / "asked", "a") as f:
            f.write(task.prompt + "\n")
        return 1.0

    def held_out(self) -> list[Task]:
        return [Task("12+34=", expected=46), Task("21+13=", data="judged"), Task("11+11=")]
`)
	recipe, err := os.ReadFile(filepath.Join(w.dir, "quickstart.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	w.write("quickstart.hcl", strings.Replace(string(recipe), `letter    = "7"`, "", 1))
	evaluate := []string{"evaluate", wordsBlock, "-r", "quickstart.hcl", "--samples", "2", "--trust", "all", "--out",
		"kept.jsonl"}
	out := w.recipe(evaluate...)
	if !strings.Contains(out, "2 of 6 completions have no score") || !strings.Contains(out, "the judge is away") {
		t.Errorf("the failures are not shown:\n%s", out)
	}
	lines := w.kept()
	if len(lines) != 3 || lines[0].Expected != "46" || len(lines[1].Failed) != 2 || len(lines[2].Scores) != 2 {
		t.Fatalf("kept %+v, want three tasks, the second of which failed", lines)
	}
	for _, c := range lines[1].Completions {
		if c.Text == "" || c.Score != nil || !strings.Contains(c.Failed, "the judge is away") {
			t.Errorf("a completion without a score is kept as %+v", c)
		}
	}
	w.write("judge", "")
	w.write("asked", "")
	if out := w.recipe(evaluate...); !strings.Contains(out, "2 of 6 completions have no score") {
		t.Errorf("the same command asked again:\n%s", out)
	}
	if out := w.recipe(append(evaluate, "--retry-failed")...); strings.Contains(out, "no score") {
		t.Errorf("with --retry-failed a completion has no score:\n%s", out)
	}
	if asked, err := os.ReadFile(filepath.Join(w.dir, "asked")); err != nil || string(asked) != "21+13=\n21+13=\n" {
		t.Errorf("asked again were %q (%v), want the task that failed", asked, err)
	}
	if lines = w.kept(); len(lines) != 4 || len(lines[3].Scores) != 2 {
		t.Errorf("kept %+v, want the task that failed once more, with scores", lines)
	}
}

// kept are the tasks of a file of an evaluation.
func (w *workshop) kept() (out []sdk.TaskScore) {
	w.t.Helper()
	data, err := os.ReadFile(filepath.Join(w.dir, "kept.jsonl"))
	if err != nil {
		w.t.Fatal(err)
	}
	for i, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		var task sdk.TaskScore
		if err := json.Unmarshal([]byte(line), &task); err != nil {
			w.t.Fatal(err)
		}
		if i > 0 {
			out = append(out, task)
		}
	}
	return out
}

// The same command would be refused again, and does not continue.
func TestAPolicyThatChangedIsNotContinued(t *testing.T) {
	t.Parallel()
	scores := &evaluation.File{Done: map[int]sdk.TaskScore{0: {}}}
	refusal := &sdk.Error{Summary: "the policy changed", Remedy: "evaluate a checkpoint",
		Err: &evaluation.MovedError{From: 2, To: 3}}
	moved := kept(refusal, scores, "scores.jsonl").Error()
	const again = "the same command continues"
	if strings.Contains(moved, again) || !strings.Contains(moved, "1 tasks of the older one are kept") {
		t.Error(moved)
	}
	if away := kept(errors.New("away"), scores, "scores.jsonl").Error(); !strings.Contains(away, again) {
		t.Error(away)
	}
	var refused *sdk.Error
	if !errors.As(kept(refusal, scores, "scores.jsonl"), &refused) || refused.Remedy == "" {
		t.Error("the remedy is lost")
	}
}
