package gymnasium

import (
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
	scripttest.Described(t, "gymnasium", source(), "description.json", "")
}

// body is a configuration over a fake policy and a fake trajectory API.
func body(t *testing.T, def *sdk.Definition, id string) (cty.Value, *plugintest.Trajectories) {
	t.Helper()
	return scripttest.Body(t, def, map[string]cty.Value{
		"max_tokens": cty.NumberIntVal(16), "drop_uninformative": cty.False,
		"id": cty.StringVal(id), "max_turns": cty.NumberIntVal(3), "invalid_action_reward": cty.NumberIntVal(-1),
		"eval_tasks": cty.NumberIntVal(2),
	})
}

// The policy of the test says letters, which name no action: the environment says so, three turns long.
func TestCompliance(t *testing.T) {
	def, with := Plugin(), scripttest.With(scripttest.Python(t, "games"))
	groups := func(t *testing.T) (any, *plugintest.Trajectories) { return body(t, def, "FrozenLake-v1") }
	bad := func(id string) func(*testing.T) any {
		return func(t *testing.T) any { c, _ := body(t, def, id); return c }
	}
	plugintest.Compliance(t, def, plugintest.Suite{
		Config:  func(t *testing.T) any { c, _ := groups(t); return c },
		Groups:  groups,
		Options: []plugintest.Option{with},
		Bad: map[string]func(*testing.T) any{
			"no such environment": bad("FrozenLakes-v1"),
			"no discrete actions": bad("Pendulum-v1"),
		},
	})
	c, api := body(t, def, "FrozenLake-v1")
	b := plugintest.Harness(t, def)
	b.Start(c, with)
	for _, g := range api.Wait(2) {
		for i, said := range scripttest.Conversations(t, g) {
			if len(said) != 7 || !strings.HasPrefix(said[1].Content, "[S]FFF") || g.Scores[i] != -3 {
				t.Errorf("%+v scores %v; want three turns on the lake, and -3", said, g.Scores[i])
			}
		}
	}
	scripttest.Evaluated(t, b, 2)
}

// The Python side by itself, with answers that a test chooses.
func TestGames(t *testing.T) {
	t.Parallel()
	scripttest.Check(t, scripttest.Python(t, "games"), nil)
}
