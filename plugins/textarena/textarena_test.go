package textarena

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
	scripttest.Described(t, "textarena", source(), "description.json", "")
}

// body is a configuration over a fake policy and a fake trajectory API.
func body(t *testing.T, def *sdk.Definition, game string, players int64) (cty.Value, *plugintest.Trajectories) {
	t.Helper()
	return scripttest.Body(t, def, map[string]cty.Value{
		"max_tokens": cty.NumberIntVal(16), "drop_uninformative": cty.False,
		"game": cty.StringVal(game), "players": cty.NumberIntVal(players), "eval_tasks": cty.NumberIntVal(2),
	})
}

func TestCompliance(t *testing.T) {
	def, with := Plugin(), scripttest.With(scripttest.Python(t, "games"))
	groups := func(t *testing.T) (any, *plugintest.Trajectories) { return body(t, def, "GuessTheNumber-v0", 1) }
	bad := func(game string, players int64) func(*testing.T) any {
		return func(t *testing.T) any { c, _ := body(t, def, game, players); return c }
	}
	plugintest.Compliance(t, def, plugintest.Suite{
		Config:  func(t *testing.T) any { c, _ := groups(t); return c },
		Groups:  groups,
		Options: []plugintest.Option{with},
		Bad: map[string]func(*testing.T) any{
			"no such game":  bad("TicTacTo-v0", 2),
			"another count": bad("TicTacToe-v0", 1),
		},
	})
}

// The policy of the test says letters: its two invalid moves lose the game before the other player has a turn, and are
// learnt from all the same.
func TestAPlayerWithoutATurnHasNoGroup(t *testing.T) {
	def, with := Plugin(), scripttest.With(scripttest.Python(t, "games"))
	c, api := body(t, def, "TicTacToe-v0", 2)
	b := plugintest.Harness(t, def)
	b.Start(c, with)
	for _, g := range api.Wait(2) {
		for i, said := range scripttest.Conversations(t, g) {
			if len(said) != 4 || !strings.Contains(said[0].Content, "You are Player 0") || g.Scores[i] != -1 {
				t.Errorf("%+v scores %v; want two turns of player 0, and -1", said, g.Scores[i])
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
