package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/single"
)

// talks is an environment of several turns; BEGIN is what its rollouts begin with, and SCORE what they score.
const talks = `
import random

from recipe_sdk import Environment, Policy, Score, Task

class Words(Environment):
    """Asks thrice."""
    defaults = {"max_tokens": 4}

    def setup(self) -> None:
        self.log("spaces: words")

    def next(self) -> Task:
        return Task(data=7)

    async def rollout(self, task: Task, policy: Policy) -> Score:
        chat = policy.chat([{"role": "user", "content": BEGIN}])
        said = []
        for n in range(3):
            said.append((await chat.answer()).text)
            chat.say(f"more {n}")
        return Score(SCORE)
`

func TestDryRunOfAnEnvironment(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ begin, score, wrong string }{
		"right":      {`"start"`, `float(said == ["42"] * 3)`, ""},
		"mixed":      {`f"start {random.random()}"`, "0.0", "begin differently"},
		"a score":    {`"start"`, "random.random()", "draws at random"},
		"a long one": {`"start " * 2000`, "0.0", "longer than the model's context"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTalks(t, c.begin, c.score)
			out, err := w.command("env", "try", "quickstart.hcl", wordsBlock, "--dry-run", "--answer", "42", "--json",
				"--trust", "all").Output()
			var d view.DryRun
			if json.NewDecoder(strings.NewReader(string(out))).Decode(&d) != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if (err != nil) != (c.wrong != "") || !strings.Contains(strings.Join(d.Wrong, "\n"), c.wrong) {
				t.Errorf("%v; want %q in %v", err, c.wrong, d.Wrong)
			}
			if name == "right" && (len(d.Wrong) > 0 || d.Turns != 3 || len(d.Scores) != 2 || d.Scores[1] != 1 ||
				d.MaxModelLen == 0 || len(d.Prompt) != 1 || !strings.Contains(strings.Join(d.Says, " "), "spaces: words")) {
				t.Errorf("%s", out)
			}
		})
	}
}

// A server without token ids answers environments of several turns, too.
func TestTurnsWithAServerWithoutTokens(t *testing.T) {
	t.Parallel()
	fixed, err := single.NewFixed("42")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := fixed.Close(); err != nil {
			t.Error(err)
		}
	}()
	w := newTalks(t, `"start"`, `float(said == ["42"] * 3)`)
	cmd := w.command("env", "try", "quickstart.hcl", wordsBlock, "--policy", fixed.URL, "--key-env", "FIXED_KEY", "-n",
		"1",
		"--group-size", "2", "--timeout", "3m", "--trust", "all")
	cmd.Env = append(cmd.Environ(), "FIXED_KEY="+fixed.Token)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "mean score 1") {
		t.Errorf("%v\n%s", err, out)
	}
	last := fixed.Asked()
	if turn := last[len(last)-1]; len(turn) != 5 || turn[4].Content != "more 1" || turn[3].Content != "42" {
		t.Errorf("the third turn: %v", turn)
	}
}

func newTalks(t *testing.T, begin, score string) *workshop {
	t.Helper()
	w := newWords(t)
	w.write("words.py", strings.NewReplacer("BEGIN", begin, "SCORE", score).Replace(talks))
	recipe, err := os.ReadFile(filepath.Join(w.dir, "quickstart.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	w.write("quickstart.hcl", strings.Replace(string(recipe), `letter    = "7"`, "", 1))
	return w
}
