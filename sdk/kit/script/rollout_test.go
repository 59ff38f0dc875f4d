package script_test

import (
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/kit/script/scripttest"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

func TestRolloutsInPythonComply(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for _, file := range []string{"game.py", "calculator.py", "blocking.py"} {
		t.Run(file, func(t *testing.T) {
			def := define(t, load(t, file))
			groups := func(t *testing.T) (any, *plugintest.Trajectories) { return scripttest.Body(t, def, nil) }
			plugintest.Compliance(t, def, plugintest.Suite{
				Config: func(t *testing.T) any { c, _ := groups(t); return c },
				Groups: groups,
			})
		})
	}
}

// Each agent has groups of its own. What the agents said is trained on, with the advantages that the rollout gave.
func TestEachAgentHasItsGroup(t *testing.T) {
	def := define(t, load(t, "game.py"))
	config, api := scripttest.Body(t, def, nil)
	b := plugintest.Harness(t, def)
	b.Start(config)
	b.Ready()
	withAdvantages, without := 0, 0
	for _, g := range api.Wait(6) {
		if len(g.Tokens) != 4 {
			t.Fatalf("a group has %d sequences, want group_size = 4", len(g.Tokens))
		}
		if g.Advantages == nil {
			without++
		} else {
			withAdvantages++
		}
		for i, tokens := range g.Tokens {
			answers, before := 0, -100
			for j := range tokens {
				trained := g.Masks[i][j] != -100
				if trained && before == -100 {
					answers++
				}
				before = g.Masks[i][j]
				switch {
				case trained && (g.Masks[i][j] != tokens[j] || g.InferenceLogprobs[i][j] > 0):
					t.Fatalf("token %d is trained on as %d with log-probability %v", tokens[j], g.Masks[i][j],
						g.InferenceLogprobs[i][j])
				case len(g.Advantages) > i && (g.Advantages[i][j] != 0) != trained:
					t.Fatalf("advantage %v on a token with mask %d", g.Advantages[i][j], g.Masks[i][j])
				}
			}
			if answers != 2 {
				t.Errorf("a sequence holds %d answers, want 2", answers)
			}
		}
	}
	if withAdvantages == 0 || without == 0 {
		t.Errorf("%d groups with advantages and %d without; want both agents", withAdvantages, without)
	}
}

// A message that does not fit ends its conversation with an empty answer, and a task that does not fit loses its group
// alone.
func TestRolloutsLongerThanTheContext(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	def := define(t, load(t, "long.py"))
	for name, c := range map[string]struct {
		task   bool
		metric string
	}{"message": {false, "metrics/truncated"}, "task": {true, "groups_too_long"}} {
		t.Run(name, func(t *testing.T) {
			config, api := scripttest.Body(t, def, map[string]cty.Value{"task": cty.BoolVal(c.task)})
			b := plugintest.Harness(t, def)
			b.Start(config)
			b.Ready()
			plugintest.CheckGroup(t, api.Wait(1)[0])
			b.Wait(c.metric, func(e *pluginpb.Event) bool { return e.GetMetrics().GetValues()[c.metric] == 1 })
		})
	}
}
