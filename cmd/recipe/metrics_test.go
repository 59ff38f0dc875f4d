package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestMetricsBesideScores: what a Score in Python says beside its value is shown by env try and evaluate.
func TestMetricsBesideScores(t *testing.T) {
	t.Parallel()
	w := newWords(t)
	w.write("words.py", `
from recipe_sdk import Completion, Environment, Score, Task

class Words(Environment):
    """Answers of one character."""
    defaults = {"max_tokens": 2}

    def next(self) -> Task:
        return Task("12+34=")

    def score(self, task: Task, completion: Completion) -> Score:
        digits = sum(c.isdigit() for c in completion.text)
        return Score(digits / 2, {"digits": digits, "length": len(completion.text)})

    def held_out(self) -> list[Task]:
        return [Task("12+34="), Task("21+13=")]
`)
	recipe, err := os.ReadFile(filepath.Join(w.dir, "quickstart.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	w.write("quickstart.hcl", strings.Replace(string(recipe), `letter    = "7"`, "", 1))
	var tried struct {
		Groups []struct {
			Completions []struct {
				Score   float64
				Metrics map[string]float64
			}
		}
	}
	try := []string{"env", "try", "quickstart.hcl", wordsBlock, "-n", "1", "--group-size", "4", "--trust", "all"}
	w.decode(&tried, append(try, "--json")...)
	for _, c := range tried.Groups[0].Completions {
		if names := slices.Sorted(maps.Keys(c.Metrics)); !slices.Equal(names, []string{"digits", "length"}) ||
			c.Metrics["digits"] != 2*c.Score {
			t.Errorf("the score is %v and the metrics %v, want digits, twice the score, and length", c.Score, c.Metrics)
		}
	}
	if out := w.recipe(try...); !strings.Contains(out, "digits ") || !strings.Contains(out, "length 2\n") {
		t.Errorf("env try does not show the metrics:\n%s", out)
	}
	var scores struct {
		Score   struct{ Mean float64 }
		Metrics map[string]struct{ Mean, Low, High float64 }
	}
	evaluate := []string{"evaluate", wordsBlock, "-r", "quickstart.hcl", "--samples", "2", "--trust", "all"}
	w.decode(&scores, append(evaluate, "--json")...)
	if m := scores.Metrics["digits"]; m.Mean != 2*scores.Score.Mean || m.Low > m.Mean || m.High < m.Mean {
		t.Errorf("evaluated %+v; want digits at twice the score, within its interval", scores)
	}
	if out := w.recipe(evaluate...); !strings.Contains(out, "metrics/length  2.000") {
		t.Errorf("evaluate does not show the metrics:\n%s", out)
	}
}

// decode reads what a command writes to standard output.
func (w *workshop) decode(into any, args ...string) {
	w.t.Helper()
	out, err := w.command(args...).Output()
	if err != nil {
		w.t.Fatalf("recipe %s: %v", strings.Join(args, " "), err)
	}
	if err := json.Unmarshal(out, into); err != nil {
		w.t.Fatalf("recipe %s: %v in\n%s", strings.Join(args, " "), err, out)
	}
}
