package verifiers

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"
	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/script/scripttest"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheDescriptionIsTheCodes(t *testing.T) {
	t.Parallel()
	scripttest.Described(t, "verifiers", source(), "description.json", "")
}

// start is for a block whose interpreter has verifiers, in testdata as the recipe's folder. The games read the words
// that lie there: with a proxy NLTK downloads none.
func start(t *testing.T) plugintest.Option {
	t.Helper()
	python := scripttest.Python(t, "verifiers")
	data, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	return func(r *pluginpb.StartRequest) {
		r.RecipeDir, r.Runtime = data, &pluginpb.Runtime{Python: python}
		r.Environment = map[string]string{
			"NLTK_DATA": filepath.Join(data, "nltk_data"), "https_proxy": "http://127.0.0.1:9", "HOME": home,
		}
	}
}

// body is a configuration over a fake policy and a fake trajectory API.
func body(t *testing.T, def *sdk.Definition, taskset string, more map[string]cty.Value) (cty.Value,
	*plugintest.Trajectories) {
	t.Helper()
	values := map[string]cty.Value{
		"max_tokens": cty.NumberIntVal(16), "drop_uninformative": cty.False,
		"group_size": cty.NumberIntVal(2), "max_turns": cty.NumberIntVal(3), "taskset": cty.StringVal(taskset),
		"path": cty.StringVal("tasksets"), "eval_tasks": cty.NumberIntVal(2),
	}
	maps.Copy(values, more)
	return scripttest.Body(t, def, values)
}

func config(name, value string) map[string]cty.Value {
	return map[string]cty.Value{"config": cty.ObjectVal(map[string]cty.Value{name: cty.StringVal(value)})}
}

func TestCompliance(t *testing.T) {
	def, started := Plugin(), start(t)
	groups := func(t *testing.T) (any, *plugintest.Trajectories) { return body(t, def, "letters", nil) }
	bad := func(taskset string, more map[string]cty.Value) func(*testing.T) any {
		return func(t *testing.T) any { c, _ := body(t, def, taskset, more); return c }
	}
	plugintest.Compliance(t, def, plugintest.Suite{
		Config:  func(t *testing.T) any { c, _ := groups(t); return c },
		Groups:  groups,
		Options: []plugintest.Option{started},
		Bad: map[string]func(*testing.T) any{
			"no such taskset": bad("leters", nil),
			"no such setting": bad("letters", config("splits", "train")),
		},
	})
}

// Two games that verifiers ships, of several turns each: what is trained, and what is evaluated.
func TestTheEnvironmentsOfThePackage(t *testing.T) {
	def, started := Plugin(), start(t)
	for game, asks := range map[string]string{"Hangman": "playing Hangman", "WordSearch": "Word Search challenge"} {
		t.Run(game, func(t *testing.T) {
			config, api := body(t, def, "textarena", config("game", game+"-v0"))
			b := plugintest.Harness(t, def)
			b.Start(config, started)
			for _, g := range api.Wait(1) {
				for _, said := range scripttest.Conversations(t, g) {
					if len(said) < 5 || !strings.Contains(said[1].Content, asks) {
						t.Errorf("the conversation is %+v; want %q, and several turns", said, asks)
					}
				}
			}
			scripttest.Evaluated(t, b, 2)
		})
	}
}

// The Python side by itself, with answers that a test chooses: rewards, tools, several turns and agents, failures.
func TestConversations(t *testing.T) {
	started := &pluginpb.StartRequest{}
	start(t)(started)
	scripttest.Check(t, started.GetRuntime().GetPython(), started.GetEnvironment())
}
