package reasoninggym

import (
	"maps"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"
	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/script/scripttest"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheDescriptionIsTheCodes(t *testing.T) {
	t.Parallel()
	scripttest.Described(t, "reasoning_gym", source(), "description.json", "")
}

// body is a configuration over a fake policy and a fake trajectory API.
func body(t *testing.T, def *sdk.Definition, more map[string]cty.Value) (cty.Value, *plugintest.Trajectories) {
	t.Helper()
	values := map[string]cty.Value{
		"max_tokens": cty.NumberIntVal(16), "drop_uninformative": cty.False,
		"eval_tasks": cty.NumberIntVal(4), "datasets": cty.TupleVal([]cty.Value{
			dataset("letter_counting", nil), dataset("chain_sum", map[string]cty.Value{"weight": cty.NumberIntVal(2)})}),
	}
	maps.Copy(values, more)
	return scripttest.Body(t, def, values)
}

func dataset(name string, more map[string]cty.Value) cty.Value {
	values := map[string]cty.Value{"name": cty.StringVal(name)}
	for n, v := range more {
		values[n] = v
	}
	return cty.ObjectVal(values)
}

func setting(name string, value int64) map[string]cty.Value {
	return map[string]cty.Value{"config": cty.ObjectVal(map[string]cty.Value{name: cty.NumberIntVal(value)})}
}

func TestCompliance(t *testing.T) {
	def, with := Plugin(), scripttest.With(scripttest.Python(t, "atropos")) // it has reasoning-gym
	groups := func(t *testing.T) (any, *plugintest.Trajectories) { return body(t, def, nil) }
	bad := func(value cty.Value) func(*testing.T) any {
		return func(t *testing.T) any {
			c, _ := body(t, def, map[string]cty.Value{"datasets": cty.TupleVal([]cty.Value{value})})
			return c
		}
	}
	plugintest.Compliance(t, def, plugintest.Suite{
		Config:  func(t *testing.T) any { c, _ := groups(t); return c },
		Groups:  groups,
		Options: []plugintest.Option{with},
		Bad: map[string]func(*testing.T) any{
			"no such dataset":    bad(dataset("chain_sums", nil)),
			"no such setting":    bad(dataset("chain_sum", setting("terms", 2))),
			"no such difficulty": bad(dataset("chain_sum", setting("min_terms", -2))),
			"a level below 0":    bad(dataset("chain_sum", map[string]cty.Value{"level": cty.NumberIntVal(-1)})),
		},
	})
}

// The scores that are posted are those of the package, of what stands in the completions.
func TestThePackageVerifiesTheAnswers(t *testing.T) {
	def, with := Plugin(), scripttest.With(scripttest.Python(t, "atropos"))
	c, api := body(t, def, map[string]cty.Value{
		"prompt_template": cty.StringVal("Q: {question}\nA: "), "answer_pattern": cty.StringVal("[a-p]"),
		"datasets": cty.TupleVal([]cty.Value{dataset("letter_counting", nil)}),
	})
	b := plugintest.Harness(t, def)
	b.Start(c, with)
	for _, g := range api.Wait(2) {
		all := scripttest.Conversations(t, g)
		if asked := all[0][0].Content; !strings.HasPrefix(asked, "Q: How many times") || !strings.HasSuffix(asked, "\nA: ") {
			t.Errorf("the model reads %q", asked)
		}
		again := b.Rescore(g)
		for i, score := range g.Scores {
			if c := again.GetCompletions(); i >= len(c) || c[i].Score == nil || c[i].GetScore() != score {
				t.Fatalf("scores %v, and %v when they are scored again", g.Scores, again)
			}
		}
	}
	scripttest.Evaluated(t, b, 4)
}

// The Python side by itself: what is right scores 1, the difficulty rises with good answers and is kept, and no
// held-out question is trained on.
func TestDifficultyRisesWithTheAnswers(t *testing.T) {
	t.Parallel()
	scripttest.Check(t, scripttest.Python(t, "atropos"), nil, t.TempDir())
}
