package textarena

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"
	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/environment/script/scripttest"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheDescriptionIsTheCodes(t *testing.T) {
	t.Parallel()
	scripttest.Described(t, "textarena", source(), "description.json", "")
}

// python is an interpreter with TextArena.
func python(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../.cache/venv-games/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skip("scripts/venv.sh games makes the Python environment that this test needs")
	}
	return path
}

// body is a configuration over a fake policy and a fake trajectory API.
func body(t *testing.T, def *sdk.Definition, game string, players int64) (cty.Value, *plugintest.Trajectories) {
	t.Helper()
	api := plugintest.FakeTrajectories(t, 16)
	server := plugintest.Harness(t, plugintest.FakeInference())
	server.Start(plugintest.FakeConfig{})
	server.Ready()
	v, err := def.Schema.Conform(cty.ObjectVal(map[string]cty.Value{
		"inference": server.Reference().Values, "trajectories": api.Reference().Values,
		"group_size": cty.NumberIntVal(4), "concurrency": cty.NumberIntVal(2), "max_tokens": cty.NumberIntVal(16),
		"max_batches_offpolicy": cty.NumberIntVal(1), "drop_uninformative": cty.False,
		"game": cty.StringVal(game), "players": cty.NumberIntVal(players), "eval_tasks": cty.NumberIntVal(2),
	}))
	if err != nil {
		t.Fatal(err)
	}
	return def.Schema.ApplyDefaults(v), api
}

func TestCompliance(t *testing.T) {
	def, path := Plugin(), python(t)
	groups := func(t *testing.T) (any, *plugintest.Trajectories) { return body(t, def, "GuessTheNumber-v0", 1) }
	bad := func(game string, players int64) func(*testing.T) any {
		return func(t *testing.T) any { c, _ := body(t, def, game, players); return c }
	}
	plugintest.Compliance(t, def, plugintest.Suite{
		Config:  func(t *testing.T) any { c, _ := groups(t); return c },
		Groups:  groups,
		Options: []plugintest.Option{with(path)},
		Bad: map[string]func(*testing.T) any{
			"no such game":  bad("TicTacTo-v0", 2),
			"another count": bad("TicTacToe-v0", 1),
		},
	})
}

func with(python string) plugintest.Option {
	return func(r *pluginpb.StartRequest) { r.Runtime = &pluginpb.Runtime{Python: python} }
}

// The policy of the test says letters: its two invalid moves lose the game before the other player has a turn, and are
// learnt from all the same.
func TestAPlayerWithoutATurnHasNoGroup(t *testing.T) {
	def, path := Plugin(), python(t)
	c, api := body(t, def, "TicTacToe-v0", 2)
	b := plugintest.Harness(t, def)
	b.Start(c, with(path))
	for _, g := range api.Wait(2) {
		plugintest.CheckGroup(t, g)
		var all [][]environment.Message
		if err := json.Unmarshal(g.Messages, &all); err != nil {
			t.Fatal(err)
		}
		for i, said := range all {
			if len(said) != 4 || !strings.Contains(said[0].Content, "You are Player 0") || g.Scores[i] != -1 {
				t.Errorf("%+v scores %v; want two turns of player 0, and -1", said, g.Scores[i])
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), plugintest.Deadline)
	defer cancel()
	if r, err := b.Client.Evaluate(ctx, &pluginpb.EvaluateRequest{}); err != nil || r.GetMetrics()["tasks"] != 2 {
		t.Errorf("%v, %v; want 2 held-out tasks", r, err)
	}
}

// The Python side by itself, with answers that a test chooses.
func TestGames(t *testing.T) {
	t.Parallel()
	run := exec.CommandContext(t.Context(), python(t), "testdata/check.py")
	run.Env = append(os.Environ(), "PYTHONPATH=python:../../sdk/python/src")
	if out, err := run.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
