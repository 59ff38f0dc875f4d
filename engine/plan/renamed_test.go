package plan_test

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
)

// A trainer under another name starts over: the plan names what leaves the run, and warns.
//
//docs:survival.md a trainer has another name, or got count or for_each
func TestARenamedTrainerIsAWarning(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		before, after string
		checkpoint    *state.Checkpoint
		stops, warns  bool
	}{
		"another name": {before: "trainer.tiny.a", after: "trainer.tiny.b", checkpoint: &state.Checkpoint{
			Path: "/c/step-35", Step: 35}, stops: true, warns: true},
		"a key": {before: "trainer.tiny.a", after: "trainer.tiny.a[0]", checkpoint: &state.Checkpoint{
			Path: "/c/step-35", Step: 35}, stops: true, warns: true},
		"another plugin": {before: "trainer.tiny.a", after: "trainer.grpo.a", checkpoint: &state.Checkpoint{
			Path: "/c/step-35", Step: 35}, stops: true},
		"before the first checkpoint": {before: "trainer.tiny.a", after: "trainer.tiny.b"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec := recorded("completed", state.IntentDone, nil)
			rec.Checkpoint = tt.checkpoint
			p, err := plan.Make(plan.Input{Recipe: &schema.Recipe{Blocks: []*schema.Block{block(tt.after, nil)}},
				Recorded: &state.Run{Blocks: map[addr.Block]*state.Block{at(tt.before): rec}}})
			if err != nil {
				t.Fatal(err)
			}
			op := p.Operation(at(tt.before))
			if tt.stops != (op != nil && op.Action == plan.Stop && strings.Contains(op.Reasons[0].Text,
				"its checkpoint of step 35 stays in /c")) {
				t.Errorf("the plan has %+v for what leaves the run", op)
			}
			warned := false
			for _, f := range p.Findings {
				warned = warned || f.Address == at(tt.after) && f.Severity == "warning" &&
					strings.Contains(f.Summary, "it starts at step 0: trainer.tiny.a")
			}
			if warned != tt.warns {
				t.Errorf("the findings are %+v", p.Findings)
			}
		})
	}
}
