package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
)

// The real programs sample from a policy, and lm-eval compares log-probabilities of given answers, which it finds by
// the tokenizer. RECIPE_HARNESS_PYTHON has both: make test-harness.
//
//docs:evaluation.md Programs of others
func TestRealHarnesses(t *testing.T) {
	t.Parallel()
	python := os.Getenv("RECIPE_HARNESS_PYTHON")
	if python == "" {
		t.Skip("RECIPE_HARNESS_PYTHON names no Python with lm-eval and Inspect: make test-harness makes one")
	}
	w := newWorkshop(t)
	w.write("tiny.hcl", "inference \"tiny\" \"policy\" {}\n")
	var sums strings.Builder
	for i := range 40 {
		a, b := i%7+20, i%11+10
		fmt.Fprintf(&sums, `{"q": "%d+%d=", "a": "%d", "choices": ["%d", "%d"], "right": 1}`+"\n", a, b, a+b, a+b+30, a+b)
	}
	w.write("sums.jsonl", sums.String())
	w.write("sums.yaml", `
task: sums
dataset_path: json
dataset_kwargs: {data_files: {test: `+filepath.Join(w.dir, "sums.jsonl")+`}}
test_split: test
output_type: generate_until
doc_to_text: "{{q}}"
doc_to_target: "{{a}}"
generation_kwargs: {until: ["\n"], max_gen_toks: 4, do_sample: false}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
`)
	w.write("choices.yaml", `
task: choices
dataset_path: json
dataset_kwargs: {data_files: {test: `+filepath.Join(w.dir, "sums.jsonl")+`}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{q}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{right}}"
target_delimiter: ""
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
`)
	w.write("inspected.py", `
import json
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import generate

@task
def inspected():
    rows = [json.loads(line) for line in open("sums.jsonl")]
    samples = [Sample(input=r["q"], target=r["a"]) for r in rows]
    return Task(dataset=samples, solver=generate(max_tokens=4), scorer=includes())
`)
	for _, c := range []struct {
		harness, tasks string
		extra          []string
		least          map[string]float64
	}{
		{"lm-eval", "sums,choices", []string{"--", "--include_path", w.dir},
			map[string]float64{"sums exact_match": 0.1, "choices acc": 0.7}},
		{"inspect", "inspected.py", nil, map[string]float64{"inspected accuracy": 0}},
	} {
		args := []string{"evaluate", "inference.tiny.policy", "-r", "tiny.hcl", "--harness", c.harness, "--python", python,
			"--tasks", c.tasks, "--out", c.harness, "--json"}
		var got view.Harness
		out := w.recipe(append(args, c.extra...)...)
		_, printed, _ := strings.Cut(out, "\n{\n") // behind the lines about the policy and the program's log
		if err := json.Unmarshal([]byte("{\n"+printed), &got); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, s := range got.Scores {
			name := s.Task + " " + s.Metric
			if least, ok := c.least[name]; ok && (s.Value < least || s.Value > 1 || s.Samples != 40 || s.Error == nil) {
				t.Errorf("%s of %s %s is %+v", name, c.harness, got.Version, s)
			}
			delete(c.least, name)
			t.Logf("%s %s: %s %.3f", c.harness, got.Version, name, s.Value)
		}
		if len(c.least) > 0 {
			t.Errorf("%s has no %v: %+v", c.harness, c.least, got.Scores)
		}
	}
}
