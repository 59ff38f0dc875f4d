package plan_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
)

// A rule that has ended a trainer is named, and a changed one lets it go on. A live trainer takes changed rules over.
//
//docs:language.md a changed stop_when lets a trainer go on that it has ended, and a live trainer takes it over
func TestChangedStopRules(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		was, endedBy, phase string
		alive               bool
		tokens              int64
		want                plan.Action
		reason, finding     string
	}{
		"ended by it, unchanged": {was: `["tokens = 3000"]`, endedBy: "stop_when: 3039 tokens trained, limit 3000",
			phase: "completed", tokens: 3000, want: plan.Nothing,
			finding: "it was ended at step 33 of 50: stop_when: 3039 tokens trained, limit 3000. To train on, change or " +
				"remove"},
		"ended by it, changed": {was: `["tokens = 3000"]`, endedBy: "stop_when: …", phase: "completed", tokens: 4000,
			want: plan.Resume, reason: `stop_when[0]: "tokens = 3000" → "tokens = 4000"; it was ended at step 33: stop_when: …`},
		"ended by it, removed": {was: `["tokens = 3000"]`, endedBy: "stop_when: …", phase: "completed", want: plan.Resume,
			reason: "it was ended at step 33"},
		"all steps done":       {was: `["tokens = 3000"]`, phase: "completed", tokens: 4000, want: plan.Nothing},
		"live":                 {was: `["tokens = 3000"]`, phase: "ready", alive: true, tokens: 4000, want: plan.Update},
		"of an earlier record": {phase: "completed", tokens: 4000, want: plan.Nothing},
		"stopped":              {was: `["tokens = 3000"]`, phase: "stopped", tokens: 4000, want: plan.Resume},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := block(trainer, map[string]int{"steps": 50})
			if c.tokens > 0 {
				b.Meta.StopWhen = []decode.StopRule{{Tokens: c.tokens}}
			}
			rec := recorded(c.phase, state.IntentDone, map[string]int{"steps": 50})
			rec.EndedBy, rec.Checkpoint = c.endedBy, &state.Checkpoint{Path: "c", Step: 33}
			if c.was != "" {
				rec.Config[plan.StopName] = json.RawMessage(c.was)
			}
			p, err := plan.Make(plan.Input{
				Recipe:   &schema.Recipe{Name: "r", File: "r.hcl", Blocks: []*schema.Block{b}},
				Recorded: &state.Run{Status: state.Completed, Blocks: map[addr.Block]*state.Block{at(trainer): rec}},
				Observed: map[addr.Block]plan.Observed{at(trainer): {Alive: c.alive}}, Dir: state.Dir(t.TempDir()),
			})
			if err != nil {
				t.Fatal(err)
			}
			op, said := p.Operation(at(trainer)), ""
			for _, r := range op.Reasons {
				said += r.Text
			}
			if op.Action != c.want || !strings.Contains(said, c.reason) {
				t.Errorf("%s because %q; want %s because %q", op.Action, said, c.want, c.reason)
			}
			if over := p.Over(); !strings.Contains(over, c.finding) || c.finding == "" && over != "" {
				t.Errorf("at the end: %q, want %q", over, c.finding)
			}
		})
	}
}
