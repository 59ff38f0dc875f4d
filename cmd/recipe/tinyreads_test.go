package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// inference "tiny" reads any text, conversations and tools, and says at once when nothing fits.
func TestTinyReadsAnyEnvironment(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		task   string
		refuse string // expected of the error; empty: it is sampled
	}{
		"text": {task: `Task("Größe: 山 🙂\t" * 40)`},
		"conversation": {task: `Task(messages=[{"role": "system", "content": "é" * 500}, ` +
			`{"role": "user", "content": "¿2+2?"}])`},
		"tools": {task: `Task(messages=[{"role": "user", "content": "¿2+2?"}], tools=[{"type": "function", ` +
			`"function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}])`},
		"too long": {task: `Task("a" * 9000)`, refuse: "the first group is too long"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWords(t)
			w.write("words.py", `
from recipe_sdk import Completion, Environment, Task

class Words(Environment):
    """Counts characters."""
    defaults = {"max_tokens": 4}

    def next(self) -> Task:
        return `+c.task+`

    def score(self, task: Task, completion: Completion) -> float:
        return float(len(completion.text))
`)
			recipe, err := os.ReadFile(filepath.Join(w.dir, "quickstart.hcl"))
			if err != nil {
				t.Fatal(err)
			}
			w.write("quickstart.hcl", strings.Replace(string(recipe), `letter    = "7"`, "", 1))
			out, err := w.command("env", "try", "quickstart.hcl", wordsBlock, "--policy", "tiny", "-n", "1", "--group-size", "2",
				"--trust", "all").CombinedOutput()
			switch {
			case c.refuse == "" && (err != nil || !strings.Contains(string(out), "1 prompt, 2 completions")):
				t.Errorf("%v\n%s", err, out)
			case c.refuse != "" && (err == nil || !strings.Contains(string(out), c.refuse)):
				t.Errorf("%v; want %q in\n%s", err, c.refuse, out)
			}
		})
	}
}
