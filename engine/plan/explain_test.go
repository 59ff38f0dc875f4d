package plan_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/spec"
	"github.com/zclconf/go-cty/cty"
)

// TestAReasonNamesTheValuesThatChanged plans a trainer in whose nested block one value has changed, and the content of
// a file that it names.
func TestAReasonNamesTheValuesThatChanged(t *testing.T) {
	t.Parallel()
	const code = "my_loss.py:clipped@sha256:"
	first, second := code+strings.Repeat("a", 64), code+strings.Repeat("b", 64)
	s := &schema.PluginSchema{Config: &spec.Schema{Blocks: []*spec.Block{{Name: "loss", Nesting: spec.Single,
		Schema: &spec.Schema{Attributes: []*spec.Attribute{
			{Name: "import", Type: cty.String, Change: spec.ChangeResume},
			{Name: "clip", Type: cty.Number, Change: spec.ChangeResume}}}}}}}
	loss := func(code string, clip float64) cty.Value {
		return cty.ObjectVal(map[string]cty.Value{"loss": cty.ObjectVal(map[string]cty.Value{
			"import": cty.StringVal(code), "clip": cty.NumberFloatVal(clip)})})
	}
	for _, tt := range []struct {
		name  string
		after cty.Value
		text  string
		parts []plan.Part
	}{
		{"a file", loss(second, 0.2), "loss.import: my_loss.py has changed",
			[]plan.Part{{Path: "loss.import", File: "my_loss.py"}}},
		{"a value", loss(first, 0.3), "loss.clip: 0.2 → 0.3", []plan.Part{{Path: "loss.clip"}}},
		{"both", loss(second, 0.3), "loss.clip: 0.2 → 0.3; loss.import: my_loss.py has changed",
			[]plan.Part{{Path: "loss.clip"}, {Path: "loss.import", File: "my_loss.py"}}},
		{"another function", loss(strings.Replace(second, "clipped", "gspo", 1), 0.2),
			`loss.import: "` + first + `" → "` + strings.Replace(second, "clipped", "gspo", 1) + `"`,
			[]plan.Part{{Path: "loss.import"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before, err := state.Recordable(loss(first, 0.2), s.Config, "")
			if err != nil {
				t.Fatal(err)
			}
			at := at(trainer)
			p, err := plan.Make(plan.Input{
				Recipe: &schema.Recipe{Blocks: []*schema.Block{{Addr: at, Schema: s, Value: tt.after}}},
				Recorded: &state.Run{Blocks: map[addr.Block]*state.Block{
					at: {Attempt: 1, Phase: "ready", Intent: state.IntentRun, Config: before}}},
				Observed: map[addr.Block]plan.Observed{at: {Alive: true}},
			})
			if err != nil {
				t.Fatal(err)
			}
			reasons := p.Operation(at).Reasons
			if len(reasons) != 1 || reasons[0].Text != tt.text || reasons[0].Attribute != "loss" {
				t.Fatalf("reasons are %+v, want the text %q", reasons, tt.text)
			}
			for i, want := range tt.parts {
				if got := reasons[0].Parts[i]; got.Path != want.Path || got.File != want.File {
					t.Errorf("part %d is %+v, want %+v", i, got, want)
				}
			}
			data, err := json.Marshal(p)
			if err != nil || !strings.Contains(string(data), `"parts":[{"path":"loss.`) {
				t.Errorf("the JSON form lacks the parts: %v %s", err, data)
			}
		})
	}
}
