package reward

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"
	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/script/scripttest"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

func TestMain(m *testing.M) {
	// Blocks would run in the environment that is activated where the tests are run, if it is still there.
	if err := os.Unsetenv("VIRTUAL_ENV"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

func TestTheDescriptionIsTheCodes(t *testing.T) {
	t.Parallel()
	scripttest.Described(t, "reward", source(), "description.json", "")
}

// rewards are functions as people have them for TRL.
const rewards = `
import functools
from mylib.rewards import counted, counted as renamed

def of(completions, letter, factor, **kwargs):
    return [factor * text.count(want) for text, want in zip(completions, letter)]

once = functools.partial(of, factor=1.0)
assigned = counted

class Counts:
    def __init__(self, factor=1.0):
        self.factor = factor

    def __call__(self, completions, letter, **kwargs):
        return of(completions, letter, self.factor)

class Waits:
    async def __call__(self, completions, letter, **kwargs):
        return of(completions, letter, 1.0)

class Needs:
    def __init__(self, factor):
        pass

made, number = Counts(), 3

def letters(completions, letter, log_metric, **kwargs):
    log_metric("counted", len(completions))
    return [float(text.count(want)) for text, want in zip(completions, letter)]

async def chat(prompts, completions, completion_ids, letter, **kwargs):
    assert prompts[0][0]["role"] == "system" and prompts[0][-1]["role"] == "user", prompts
    assert len(completion_ids[0]) > 0, completion_ids
    return [float(c[0]["content"].count(want)) for c, want in zip(completions, letter)]

def none(completions, **kwargs):
    return [None] * len(completions)

def one(completions, **kwargs):
    return 1.0

def needs(completions, difficulty, letter, **kwargs):
    return [1.0] * len(completions)

def broken(completions, **kwargs):
    raise ValueError("the judge is on strike")
`

// folder is a recipe's folder with reward functions and a dataset of 12 rows. Where an interpreter is given, it is in
// Parquet as well, and as a copy of a dataset of the hub.
func folder(t *testing.T, python string) string {
	t.Helper()
	dir := t.TempDir()
	var rows strings.Builder
	for i := range 12 {
		fmt.Fprintf(&rows, "{\"prompt\": \"row %d: \", \"letter\": \"%c\"}\n", i, 'a'+i)
	}
	if err := os.Mkdir(filepath.Join(dir, "mylib"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"rewards.py": rewards, "rows.jsonl": rows.String(), "mylib/__init__.py": "",
		"mylib/rewards.py": "from .inner import counted\n",
		"mylib/inner.py": "def counted(completions, letter, **kwargs):\n" +
			"    return [float(text.count(want)) for text, want in zip(completions, letter)]\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if python != "" {
		out, err := exec.CommandContext(t.Context(), python, "-c", "import json, os, sys, pyarrow, pyarrow.parquet as p; "+
			"d = sys.argv[1]; rows = pyarrow.Table.from_pylist([json.loads(l) for l in open(d + '/rows.jsonl')]); "+
			"p.write_table(rows, d + '/rows.parquet'); os.makedirs(d + '/copy/data'); "+
			"p.write_table(rows, d + '/copy/data/train-00000-of-00001.parquet'); "+
			"p.write_table(rows[:1], d + '/copy/data/test-00000-of-00001.parquet')", dir).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return dir
}

// body is a configuration over a fake policy and a fake trajectory API.
func body(t *testing.T, def *sdk.Definition, more map[string]cty.Value) (cty.Value, *plugintest.Trajectories) {
	t.Helper()
	values := map[string]cty.Value{
		"dataset": cty.StringVal("rows.jsonl"), "function": cty.StringVal("rewards.py:letters"),
		"eval_rows": cty.NumberIntVal(2), "max_tokens": cty.NumberIntVal(16), "expected_column": cty.StringVal("letter"),
	}
	maps.Copy(values, more)
	return scripttest.Body(t, def, values)
}

func in(dir string) plugintest.Option {
	return func(r *pluginpb.StartRequest) { r.RecipeDir = dir }
}

func TestCompliance(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not in PATH")
	}
	def := Plugin()
	groups := func(t *testing.T) (any, *plugintest.Trajectories) { return body(t, def, nil) }
	bad := func(name, value string) func(*testing.T) any {
		return func(t *testing.T) any {
			c, _ := body(t, def, map[string]cty.Value{name: cty.StringVal(value)})
			return c
		}
	}
	plugintest.Compliance(t, def, plugintest.Suite{
		Config:  func(t *testing.T) any { c, _ := groups(t); return c },
		Groups:  groups,
		Options: []plugintest.Option{in(folder(t, ""))},
		Bad: map[string]func(*testing.T) any{
			"no such file":     bad("dataset", "row.jsonl"),
			"no such function": bad("function", "rewards.py:leters"),
			"no such column":   bad("prompt_column", "question"),
			"no dataset":       bad("dataset", "rewards.json"),
			"no list":          bad("function", "rewards.py:one"),
			"no reward at all": bad("function", "rewards.py:none"),
			"no such argument": bad("function", "rewards.py:needs"),
			"an exception":     bad("function", "rewards.py:broken"),
			"no such module":   bad("function", "mylib.reward:counted"),
			"not in a module":  bad("function", "mylib.rewards:count"),
			"a number":         bad("function", "rewards.py:number"),
			"a class to make":  bad("function", "rewards.py:Needs"),
		},
	})
}

// The scores are those of the functions, given what TRL gives them.
//
//docs:environments/reward.md A reward function and a dataset: environment "reward"
//docs:rescoring.md A recorded group has the scores of the run when it is scored again
func TestScores(t *testing.T) {
	venv := scripttest.Python(t, "atropos") // it has pyarrow and datasets
	cache := t.TempDir()
	t.Setenv("HF_HOME", cache)
	t.Setenv("HF_HUB_OFFLINE", "1")
	dir := folder(t, venv)
	function := func(name string, weight float64) cty.Value {
		return cty.ObjectVal(map[string]cty.Value{"function": cty.StringVal("rewards.py:" + name),
			"weight": cty.NumberFloatVal(weight)})
	}
	for name, c := range map[string]struct {
		more    map[string]cty.Value
		weight  float64
		turns   int
		metrics []string
	}{
		"jsonl": {nil, 1, 2, []string{"counted", "reward/letters"}},
		"parquet": {map[string]cty.Value{"dataset": cty.StringVal("rows.parquet")}, 1, 2,
			[]string{"counted", "reward/letters"}},
		"copy of the hub": {map[string]cty.Value{"dataset": cty.StringVal("copy")}, 1, 2,
			[]string{"counted", "reward/letters"}},
		"conversation": {map[string]cty.Value{"function": cty.StringVal("rewards.py:chat"),
			"system_prompt": cty.StringVal("be brief")}, 1, 3, []string{"reward/chat"}},
		"several functions": {map[string]cty.Value{"function": cty.NullVal(cty.String), "functions": cty.TupleVal(
			[]cty.Value{function("letters", 2), function("none", 1), function("letters", 0.5)})}, 2.5, 2,
			[]string{"counted", "reward/letters"}},
	} {
		t.Run(name, func(t *testing.T) {
			def := Plugin()
			config, api := body(t, def, c.more)
			b := plugintest.Harness(t, def)
			b.Start(config, in(dir), scripttest.With(venv))
			for _, g := range api.Wait(3) {
				again := b.Rescore(g).GetCompletions()
				for i, said := range scripttest.Conversations(t, g) {
					if i >= len(again) || again[i].Score == nil || again[i].GetScore() != g.Scores[i] {
						t.Errorf("%+v has the score %v, and %v when it is scored again", said, g.Scores[i], again)
					}
					var row int
					if len(said) != c.turns {
						t.Fatalf("%+v, want %d turns", said, c.turns)
					}
					if _, err := fmt.Sscanf(said[c.turns-2].Content, "row %d:", &row); err != nil || row < 2 {
						t.Errorf("the model reads %+v (%v); rows 0 and 1 are kept back", said, err)
					}
					letter := string(rune('a' + row))
					if got := g.GroupOverrides[trajectory.OverrideExpected]; got != letter {
						t.Errorf("the right answer is recorded as %v, want %s", got, letter)
					}
					for _, name := range c.metrics {
						own := g.Overrides[i][trajectory.OverrideMetrics].(map[string]any)
						want := float64(len(g.Scores)) // the function gets the whole group
						if name != "counted" {
							want = float64(strings.Count(said[c.turns-1].Content, letter))
						}
						if own[name] != want || len(own) != len(c.metrics) {
							t.Errorf("metrics %v for %+v, want %v with %s of %s %v", own, said, c.metrics, name, letter, want)
						}
					}
					if want := c.weight * float64(strings.Count(said[c.turns-1].Content, letter)); g.Scores[i] != want {
						t.Errorf("score %v for %+v, want %v", g.Scores[i], said, want)
					}
				}
			}
		})
	}
	if left, err := os.ReadDir(cache); err != nil || len(left) == 0 {
		t.Errorf("nothing in HF_HOME (%v): datasets has kept its cache elsewhere", err)
	}
}

// A function may be imported, assigned, bound in part, an object or a class with __call__, or in a module.
func TestFunctionsOfEveryForm(t *testing.T) {
	t.Parallel()
	python := scripttest.Python(t, "atropos")
	for _, name := range []string{"rewards.py:counted", "rewards.py:renamed", "rewards.py:assigned", "rewards.py:once",
		"rewards.py:made", "rewards.py:Counts", "rewards.py:Waits", "mylib.rewards:counted"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			def := Plugin()
			config, api := body(t, def, map[string]cty.Value{"function": cty.StringVal(name)})
			b := plugintest.Harness(t, def)
			b.Start(config, in(folder(t, "")), scripttest.With(python))
			for _, g := range api.Wait(1) {
				letter, _ := g.GroupOverrides[trajectory.OverrideExpected].(string)
				for i, said := range scripttest.Conversations(t, g) {
					if want := float64(strings.Count(said[1].Content, letter)); letter == "" || g.Scores[i] != want {
						t.Errorf("score %v for %+v, want %v", g.Scores[i], said, want)
					}
				}
			}
		})
	}
}
