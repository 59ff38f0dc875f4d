package plan_test

import (
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// An apply makes the evaluations of the steps that are left.
func TestEvaluationsOfAResumedRun(t *testing.T) {
	t.Parallel()
	steps := func(b *schema.Block, n int) *schema.Block {
		b.Schema.Config.Attributes = append(b.Schema.Config.Attributes,
			&spec.Attribute{Name: "steps", Type: cty.Number, Change: spec.ChangeLive})
		b.Value = cty.ObjectVal(map[string]cty.Value{"steps": cty.NumberIntVal(int64(n))})
		return b
	}
	for name, c := range map[string]struct {
		steps      int
		e          decode.Evaluation
		phase      string
		checkpoint *state.Checkpoint
		onDisk     state.OnDisk
		left, past int
	}{
		"new": {steps: 100, e: decode.Evaluation{AtStart: true, Every: 10, AtEnd: true}, left: 11},
		"stopped": {100, decode.Evaluation{AtStart: true, Every: 10, AtEnd: true},
			"stopped", &state.Checkpoint{Step: 45}, state.OnDisk{}, 6, 5},
		"stopped at its end": {100, decode.Evaluation{AtStart: true, Every: 30, AtEnd: true},
			"completed", &state.Checkpoint{Step: 100}, state.OnDisk{}, 0, 5},
		"no checkpoint yet": {100, decode.Evaluation{AtStart: true, AtEnd: true},
			"stopped", nil, state.OnDisk{}, 2, 0},
		"an older checkpoint": {100, decode.Evaluation{Every: 10},
			"stopped", &state.Checkpoint{Step: 45}, state.OnDisk{Left: &state.Checkpoint{Step: 20}}, 8, 2},
		"more steps": {200, decode.Evaluation{AtStart: true, AtEnd: true},
			"completed", &state.Checkpoint{Step: 100}, state.OnDisk{}, 1, 1},
	} {
		c.e.Environment, c.e.Samples = at(env), 1
		e := block(env, nil)
		e.Needs = []schema.Need{{On: at(inf), Attribute: "inference"}}
		r := &schema.Recipe{Name: "r", Evaluations: []decode.Evaluation{c.e},
			Blocks: []*schema.Block{block(inf, nil), e, steps(block(trainer, nil), c.steps), block(sync, nil, trainer, inf)}}
		in := plan.Input{Recipe: r, Recorded: &state.Run{Blocks: map[addr.Block]*state.Block{}},
			OnDisk: map[addr.Block]state.OnDisk{at(trainer): c.onDisk}}
		if c.phase != "" {
			rec := recorded(c.phase, state.IntentDone, map[string]int{"steps": c.steps})
			rec.Checkpoint = c.checkpoint
			in.Recorded.Blocks[at(trainer)] = rec
		}
		p, err := plan.Make(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Evaluations[0]; got.Count != c.left || got.Past != c.past {
			t.Errorf("%s: %d evaluations are left and %d past, want %d and %d", name, got.Count, got.Past, c.left, c.past)
		}
	}
}
