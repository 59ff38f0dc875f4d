package plan_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// TestAPlanComparesCheckpointsWithTheDisk: it promises no step whose checkpoint is gone.
//
//docs:survival.md the recorded checkpoint of a trainer is gone (deleted, or its disk is not mounted)
func TestAPlanComparesCheckpointsWithTheDisk(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kept     state.OnDisk
		phase    string
		stored   bool
		scratch  bool
		alive    bool
		action   plan.Action
		reason   string
		severity string // of the finding; empty: there is none
		finding  string
	}{
		"it is there": {phase: "stopped", action: plan.Resume, reason: "continues from step 129"},
		"gone": {kept: state.OnDisk{Gone: true}, phase: "stopped", action: plan.Resume, reason: "it was stopped",
			severity: "error", finding: "step 129, /c/step_129, is gone, and it would start at step 0"},
		"gone, an older one is left": {kept: state.OnDisk{Gone: true, Left: &state.Checkpoint{Path: "/c/step_64", Step: 64}},
			phase: "stopped", action: plan.Resume, reason: "continues from step 64", severity: "warning",
			finding: "step 129, /c/step_129, is gone"},
		"gone, in a store": {kept: state.OnDisk{Gone: true}, phase: "stopped", stored: true, action: plan.Resume,
			severity: "warning", finding: "is gone"},
		"gone, from scratch": {kept: state.OnDisk{Gone: true}, phase: "stopped", scratch: true, action: plan.Replace,
			reason: "starts at step 0 (--from-scratch)"},
		"gone, in a store, from scratch": {kept: state.OnDisk{Gone: true}, phase: "stopped", stored: true, scratch: true,
			action: plan.Replace, reason: "starts at step 0 (--from-scratch)"},
		"from scratch, and it is there": {phase: "stopped", scratch: true, action: plan.Resume,
			reason: "continues from step 129"},
		"gone while it runs":          {kept: state.OnDisk{Gone: true}, phase: "ready", alive: true, action: plan.Nothing},
		"gone after it has completed": {kept: state.OnDisk{Gone: true}, phase: "completed", action: plan.Nothing},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec := recorded(c.phase, state.IntentDone, nil)
			rec.Checkpoint = &state.Checkpoint{Path: "/c/step_129", Step: 129}
			declared := block(trainer, nil)
			in := plan.Input{Recipe: &schema.Recipe{Blocks: []*schema.Block{declared}}, Recorded: &state.Run{
				Blocks: map[addr.Block]*state.Block{at(trainer): rec}}, FromScratch: c.scratch,
				OnDisk: map[addr.Block]state.OnDisk{at(trainer): c.kept}}
			if c.alive {
				in.Observed = map[addr.Block]plan.Observed{at(trainer): {Alive: true}}
			}
			if c.stored {
				declared.Schema.Config.Attributes = append(declared.Schema.Config.Attributes,
					&spec.Attribute{Name: "store", Type: cty.String})
				declared.Value = cty.ObjectVal(map[string]cty.Value{"store": cty.StringVal("s3://b/f")})
				rec.Config = map[string]json.RawMessage{"store": json.RawMessage(`"s3://b/f"`)}
			}
			p, err := plan.Make(in)
			if err != nil {
				t.Fatal(err)
			}
			op, reasons := p.Operation(at(trainer)), ""
			for _, r := range op.Reasons {
				reasons += r.Text + "\n"
			}
			if op.Action != c.action || !strings.Contains(reasons, c.reason) {
				t.Errorf("%s because %q; expected %s because %q", op.Action, reasons, c.action, c.reason)
			}
			severity, text := "", ""
			for _, f := range p.Findings {
				if strings.Contains(f.Summary, "checkpoint") {
					severity, text = f.Severity, f.Summary
				}
			}
			if severity != c.severity || !strings.Contains(text, c.finding) {
				t.Errorf("the plan finds %s %q; expected %s %q", severity, text, c.severity, c.finding)
			}
		})
	}
}
