package reward

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/script/scripttest"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// failing are reward functions of which one completion of each group, the first in the alphabet, decides nothing for
// the others.
const failing = `
import asyncio, os, re, time

def chosen(completions):
    "Marks the first of a group for when it comes again by itself."
    for text in completions[:1] if len(completions) == 1 else [min(completions)]:
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mark-" + text)
        if len(completions) > 1: open(path, "w").close()
        return os.path.exists(path)

def scores(completions): return [float(sum(map(ord, c))) for c in completions]

def raises(completions, **kwargs):
    if chosen(completions): raise ValueError("no parse")
    return scores(completions)

def hangs(completions, **kwargs):
    if chosen(completions): re.match("(a+)+$", "a" * 60 + "b")  # holds Python's lock
    return scores(completions)

def dies(completions, **kwargs):
    if chosen(completions): os._exit(9)
    return scores(completions)

async def sleeps(completions, **kwargs):
    if chosen(completions): await asyncio.sleep(1000)
    return scores(completions)

async def blocks(completions, **kwargs):
    if chosen(completions): time.sleep(1000)
    return scores(completions)

def nothing(completions, **kwargs):
    marked = chosen(completions)
    return [None if marked and c == min(completions) else s for c, s in zip(completions, scores(completions))]

def as_in_trl(completions, trainer_state, log_extra, **kwargs):
    async def value(): return trainer_state.global_step
    asyncio.run(value())
    log_extra("column", completions)
    return scores(completions)
`

// One completion that cannot be scored is masked, by its reason, and its group is sent.
func TestOneCompletionDoesNotDecide(t *testing.T) {
	python := scripttest.Python(t, "atropos")
	for name, c := range map[string]struct {
		limit  string
		failed string // "": all have a score
		cause  string // what the metrics count it as
	}{
		"raises": {limit: "1m", failed: "ValueError: no parse", cause: "failing.py:14 ValueError"},
		"hangs":  {limit: "500ms", failed: "hangs with the completion", cause: "score_timeout"},
		"dies": {limit: "1m", failed: "a process that scores has ended: exit code 9, in a call of dies with the " +
			"completion", cause: "a process that scores has ended"},
		"sleeps": {limit: "500ms", failed: "sleeps with the completion", cause: "score_timeout"},
		"blocks": {limit: "500ms", failed: "blocks with the completion", cause: "score_timeout"},
		"nothing": {limit: "1m", failed: "every reward function returned None",
			cause: "every reward function returned None"},
		"as_in_trl": {limit: "1m"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t, "")
			if err := os.WriteFile(filepath.Join(dir, "failing.py"), []byte(failing), 0o600); err != nil {
				t.Fatal(err)
			}
			def := Plugin()
			config, api := body(t, def, map[string]cty.Value{"function": cty.StringVal("failing.py:" + name),
				"score_timeout": cty.StringVal(c.limit), "score_processes": cty.NumberIntVal(2),
				"drop_uninformative": cty.False})
			block := plugintest.Harness(t, def)
			block.Start(config, in(dir), scripttest.With(python))
			g := api.Wait(1)[0]
			var failed []string
			for i := range g.Scores {
				why, is := "", false
				if g.Overrides != nil {
					why, is = g.Overrides[i][trajectory.OverrideFailed].(string)
				}
				trained := slices.ContainsFunc(g.Masks[i], func(m int) bool { return m != -100 })
				if trained == is {
					t.Errorf("completion %d: trained %v, failed %q", i, trained, why)
				}
				if is {
					failed = append(failed, why)
				}
			}
			switch {
			case c.failed == "" && len(failed) > 0:
				t.Errorf("failed: %q", failed)
			case c.failed != "" && (len(failed) != 1 || !strings.Contains(failed[0], c.failed)):
				t.Errorf("failed: %q, want one: %q", failed, c.failed)
			}
			if c.cause != "" {
				block.Wait("rollouts that are counted as "+c.cause, func(e *pluginpb.Event) bool {
					return e.GetMetrics().GetValues()["rollouts_failed/"+c.cause] > 0
				})
			}
		})
	}
}

// What cannot be scored for a reason in the user's file ends the block without another attempt, and the reason names
// the function.
func TestFaultsOfAFileAreFinal(t *testing.T) {
	t.Parallel()
	python := scripttest.Python(t, "atropos")
	const faults = `
def huge(completions, **kwargs): return [2e15 for _ in completions]
def never(completions, **kwargs): return [None for _ in completions]
def narrow(completions, letter): return [1.0 for _ in completions]
def first(completions, **kwargs): return [4.0 for _ in completions[:1]]
async def later(completions, **kwargs): return [4.0 for _ in completions[:1]]
def word(completions, **kwargs): return "7"
class Ordered:
    def __call__(self, completions, /, **kwargs): return [1.0 for _ in completions]
def talk(completions, **kwargs): return [float("7" in c[0]["content"]) for c in completions]
`
	for name, want := range map[string]string{
		"huge":  "huge returned 2e+15; expected a number between -1e+15 and 1e+15",
		"never": "every reward function returned None (",
		"first": "first must return a list with one number for each completion, or None where it does not apply; it " +
			"returned [4.0] (list) with 1 for 4 completions",
		"later":   "it returned [4.0] (list) with 1 for 4 completions",
		"word":    "it returned '7' (str) for 4 completions",
		"Ordered": "Ordered takes 'completions' by position only, and it is called by name. Remove the / behind it",
		"talk":    "completions are texts here, because the prompt is one; they are lists of messages where it is a list",
		"narrow": "narrow does not take 'prompts', 'completion_ids', 'trainer_state', 'log_extra', 'log_metric', which it " +
			"is " +
			"given, as by TRL: write **kwargs",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t, "")
			if err := os.WriteFile(filepath.Join(dir, "faults.py"), []byte(faults), 0o600); err != nil {
				t.Fatal(err)
			}
			def := Plugin()
			config, _ := body(t, def, map[string]cty.Value{"function": cty.StringVal("faults.py:" + name),
				"score_processes": cty.NumberIntVal(2)})
			block := plugintest.Harness(t, def)
			block.Start(config, in(dir), scripttest.With(python))
			e := block.Wait("a failed phase", func(e *pluginpb.Event) bool {
				return sdk.Phase(e.GetPhase().GetPhase()) == sdk.Failed
			})
			if p := e.GetPhase(); !strings.Contains(p.GetMessage(), want) || !p.GetFinal() {
				t.Errorf("it ended with %v, expected %q, finally", p, want)
			}
		})
	}
}

// A row that no function can be called with, or that is no prompt, is named with its line when the block starts.
func TestRowsAreNamedWithTheirLines(t *testing.T) {
	t.Parallel()
	python := scripttest.Python(t, "atropos")
	for name, c := range map[string]struct {
		file, row string
		more      map[string]cty.Value
		want      string
	}{
		"lacks": {"rows.jsonl", `{"prompt": "1"}`, nil, "needs 'letter', which the row at rows.jsonl:14 does not have"},
		"other": {"rows.jsonl", `{"prompt": "1", "letter": "a", "level": 1}`,
			map[string]cty.Value{"function": cty.StringVal("strict.py:strict")},
			"strict does not take 'level', which it is given, with the row at rows.jsonl:14"},
		"prompt": {"rows.jsonl", `{"prompt": [{"from": "human"}], "letter": "a"}`, nil, "rows.jsonl:14: want in column 'prompt'"},
		"image": {"rows.jsonl", `{"prompt": [{"role": "user", "content": [{"type": "image"}]}], "letter": "a"}`, nil,
			"rows.jsonl:14: a message has a part that is no text"},
		"table":    {"rows.csv", "prompt,letter\n\"a\nb\",1\n,2\n3,4\n", nil, "rows.csv:4: want in column 'prompt'"},
		"expected": {"rows.jsonl", "", map[string]cty.Value{"expected_column": cty.StringVal("leter")}, "no column 'leter'"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t, "")
			strict := "def strict(prompts, completions, completion_ids, trainer_state, log_extra, log_metric, letter):\n" +
				"    return [1.0 for _ in completions]\n"
			rows, err := os.ReadFile(filepath.Join(dir, "rows.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			text := string(rows) + "\n" + c.row
			if c.file != "rows.jsonl" {
				text = c.row
			}
			for file, text := range map[string]string{c.file: text, "strict.py": strict} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			more := map[string]cty.Value{"dataset": cty.StringVal(c.file)}
			maps.Copy(more, c.more)
			def := Plugin()
			config, _ := body(t, def, more)
			block := plugintest.Harness(t, def)
			block.Start(config, in(dir), scripttest.With(python))
			e := block.Wait("a failed phase", func(e *pluginpb.Event) bool {
				return sdk.Phase(e.GetPhase().GetPhase()) == sdk.Failed
			})
			if p := e.GetPhase(); !strings.Contains(p.GetMessage(), c.want) || !p.GetFinal() {
				t.Errorf("it ended with %v, expected %q, finally", p, c.want)
			}
		})
	}
}

// Long before score_timeout the log and the block's status name the function that hangs, and the completion.
//
//docs:environments/reward.md a call that takes longer than 10 s is named in the log and in recipe status --why
func TestARewardThatHangsIsNamed(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for 10 s")
	}
	t.Parallel()
	python := scripttest.Python(t, "atropos")
	dir := folder(t, "")
	if err := os.WriteFile(filepath.Join(dir, "failing.py"), []byte(failing), 0o600); err != nil {
		t.Fatal(err)
	}
	def := Plugin()
	config, _ := body(t, def, map[string]cty.Value{"function": cty.StringVal("failing.py:hangs"),
		"score_timeout": cty.StringVal("10m"), "score_processes": cty.NumberIntVal(2), "drop_uninformative": cty.False})
	block := plugintest.Harness(t, def)
	block.Start(config, in(dir), scripttest.With(python))
	until := time.Now().Add(5 * time.Minute)
	for time.Now().Before(until) {
		for _, a := range block.Status().GetActivities() {
			if strings.HasPrefix(a.GetWhat(), "Score of ") && strings.Contains(a.GetDetail(), "hangs with the ") {
				return
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("no activity names the function: %v", block.Status().GetActivities())
}
