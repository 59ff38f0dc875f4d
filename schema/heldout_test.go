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

// A sync block whose first update is due after the last step but the end brings no weights that are sampled with.
func TestWeightsThatNeverCome(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		every, steps int64
		warned       bool
	}{
		"each step": {1, 30, false}, "one step": {1, 1, false}, "some": {29, 30, false}, "at the end": {30, 30, true},
		"never": {50, 30, true}, "not known": {50, 0, false},
	} {
		trainer := addr.Block{Kind: kind.Trainer, Plugin: "x", Name: "p"}
		sync := addr.Block{Kind: kind.Sync, Plugin: "x", Name: "p"}
		value := func(name string, n int64) cty.Value {
			return cty.ObjectVal(map[string]cty.Value{name: cty.NumberIntVal(n)})
		}
		diags := checkPeriods([]*Block{{Addr: trainer, Value: value("steps", c.steps)},
			{Addr: sync, Value: value("every", c.every), Needs: []Need{{On: trainer}}}})
		if found := len(diags) > 0; found != c.warned || diags.HasErrors() {
			t.Errorf("%s: %v", name, diags)
		}
	}
}

// An evaluation whose interval is longer than the run is made at its start and end alone, and a gate whose first step
// never comes judges nothing: both would be silent.
func TestAnEvaluationThatNeverComes(t *testing.T) {
	t.Parallel()
	both := decode.Evaluation{AtStart: true, AtEnd: true}
	for name, c := range map[string]struct {
		every, from, steps int64
		of                 decode.Evaluation
		want               string
	}{
		"every step":       {every: 1, steps: 30, of: both},
		"at the last step": {every: 30, steps: 30, of: both},
		"start and end":    {every: 50, steps: 30, of: both, want: "only the start and the end of the run are evaluated"},
		"the start":        {every: 50, steps: 30, of: decode.Evaluation{AtStart: true}, want: "only the start of the run"},
		"none":             {every: 50, steps: 30, want: "no evaluation is made"},
		"not asked for":    {every: 0, steps: 30, of: both},
		"not known":        {every: 50, of: both},
		"gate":             {every: 10, from: 40, steps: 30, of: both, want: "the gate judges no result"},
		"gate at the end":  {every: 10, from: 30, steps: 30, of: both},
	} {
		c.of.Every = c.every
		if c.from > 0 {
			c.of.Gate = &decode.Gate{From: c.from}
		}
		if got := neverDue(&c.of, c.steps); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
