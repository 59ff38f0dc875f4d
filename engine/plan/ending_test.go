package plan_test

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// TestStepsThatAreDone: lowering steps to the number that is done ends the training, and so does a fork of a completed
// run with as many. The plan says so.
func TestStepsThatAreDone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		steps, step int
		checkpoint  int64
		phase       string
		alive       bool
		want        string
	}{
		"below": {steps: 100, step: 137, phase: "ready", alive: true,
			want: "steps = 100 ends the training: 137 steps are done"},
		"at": {steps: 137, step: 137, phase: "ready", alive: true,
			want: "steps = 137 ends the training: 137 steps are done"},
		"above": {steps: 138, step: 137, phase: "ready", alive: true},
		"the checkpoint": {steps: 140, step: 130, checkpoint: 150, phase: "ready", alive: true,
			want: "150 steps are done"},
		"it is not running":  {steps: 100, step: 137, checkpoint: 130, phase: "stopped", want: "130 steps are done"},
		"some are lost":      {steps: 135, step: 137, checkpoint: 130, phase: "stopped"},
		"nothing is changed": {steps: 300, step: 137, phase: "ready", alive: true},
		"it continues where it ends": {steps: 300, checkpoint: 300, phase: "stopped",
			want: "steps = 300 ends the training: 300 steps are done"},
		"it continues before": {steps: 300, step: 300, checkpoint: 299, phase: "stopped"},
		"nothing is done":     {steps: 100, phase: "ready", alive: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := block(trainer, map[string]int{"steps": c.steps})
			b.Schema.Config.Attributes = append(b.Schema.Config.Attributes,
				&spec.Attribute{Name: "steps", Type: b.Schema.Config.Attributes[0].Type, Change: spec.ChangeLive})
			rec := recorded(c.phase, state.IntentRun, map[string]int{"steps": 300})
			rec.Step = int64(c.step)
			if c.checkpoint > 0 {
				rec.Checkpoint = &state.Checkpoint{Path: "c", Step: c.checkpoint}
			}
			p, err := plan.Make(plan.Input{
				Recipe:   &schema.Recipe{Name: "r", Blocks: []*schema.Block{b}},
				Recorded: &state.Run{Blocks: map[addr.Block]*state.Block{at(trainer): rec}},
				Observed: map[addr.Block]plan.Observed{at(trainer): {Alive: c.alive}}, Dir: state.Dir(t.TempDir()),
			})
			if err != nil {
				t.Fatal(err)
			}
			if c.want == "" {
				if len(p.Findings) > 0 {
					t.Errorf("findings: %+v", p.Findings)
				}
				return
			}
			if len(p.Findings) != 1 || p.Findings[0].Severity != "warning" ||
				!strings.Contains(p.Findings[0].Summary, c.want) || len(p.Errors()) > 0 {
				t.Fatalf("findings: %+v", p.Findings)
			}
			for _, r := range p.Operations[0].Reasons {
				if r.Attribute == "steps" && !strings.Contains(r.Text, "this ends the training") {
					t.Errorf("reason: %s", r.Text)
				}
			}
		})
	}
}
