package schema

import (
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// An environment that holds out no task cannot be evaluated. One whose number is not known yet may hold out some.
func TestAnEvaluationHasTasks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		values  map[string]cty.Value
		refused bool
	}{
		"none":      {map[string]cty.Value{"eval_tasks": cty.Zero}, true},
		"some":      {map[string]cty.Value{"eval_tasks": cty.NumberIntVal(4)}, false},
		"unknown":   {map[string]cty.Value{"eval_tasks": cty.UnknownVal(cty.Number)}, false},
		"sensitive": {map[string]cty.Value{"eval_tasks": cty.Zero.Mark("sensitive")}, true},
		"no number": {map[string]cty.Value{"eval_tasks": cty.NullVal(cty.Number)}, false},
		"other":     {map[string]cty.Value{"tasks": cty.Zero}, false},
	} {
		at := func(k kind.Kind) addr.Block { return addr.Block{Kind: k, Plugin: "x", Name: "p"} }
		inference, environment := at(kind.Inference), at(kind.Environment)
		trainer, sync := at(kind.Trainer), at(kind.Sync)
		nothing := cty.EmptyObjectVal
		blocks := []*Block{{Addr: inference, Value: nothing},
			{Addr: environment, Value: cty.ObjectVal(c.values), Needs: []Need{{On: inference, Attribute: "inference"}}},
			{Addr: trainer, Value: nothing},
			{Addr: sync, Value: nothing, Needs: []Need{{On: inference}, {On: trainer}}}}
		diags := checkEvaluations([]*decode.Evaluation{{Name: "held_out", Environment: environment}}, blocks)
		if found := strings.Contains(diags.Error(), "holds out no task"); found != c.refused || len(diags) > 1 {
			t.Errorf("%s: refused %v, want %v: %v", name, found, c.refused, diags)
		}
	}
}
