package sizing_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/sizing"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Blocks are started on the GPUs that a plan assigns, so the whole assignment is compared here.
func TestGPUsAreDealt(t *testing.T) {
	t.Parallel()
	type placed = map[kind.Kind]*sdk.Placement
	type dealt = map[kind.Kind][]string
	one, two := &sdk.Placement{GPUs: 1}, &sdk.Placement{GPUs: 2}
	sleeping := map[kind.Kind]sdk.Estimate{kind.Sync: facts("colocated", "auto"),
		kind.Inference: facts("sleeps", "true")}
	for name, c := range map[string]struct {
		there     []string
		placed    placed
		estimates map[kind.Kind]sdk.Estimate
		kept      dealt
		want      dealt
		fault     string
	}{
		"each its own": {there: gpus(2), placed: placed{kind.Inference: one, kind.Trainer: one},
			want: dealt{kind.Inference: {"0"}, kind.Trainer: {"1"}}},
		"by the names of the machine": {there: []string{"5", "7"},
			placed: placed{kind.Inference: one, kind.Trainer: one},
			want:   dealt{kind.Inference: {"5"}, kind.Trainer: {"7"}}},
		"several": {there: gpus(4), placed: placed{kind.Inference: two, kind.Trainer: two},
			want: dealt{kind.Inference: {"0", "1"}, kind.Trainer: {"2", "3"}}},
		"too few for all: they share": {there: gpus(2), placed: placed{kind.Inference: two, kind.Trainer: one},
			want: dealt{kind.Inference: {"0", "1"}, kind.Trainer: {"0"}}},
		"around those that are named": {there: gpus(2),
			placed: placed{kind.Inference: one, kind.Trainer: {Devices: []string{"0"}}},
			want:   dealt{kind.Inference: {"1"}, kind.Trainer: {"0"}}},
		"turns: the same": {there: gpus(8), placed: placed{kind.Inference: one, kind.Trainer: one},
			estimates: sleeping, want: dealt{kind.Inference: {"0"}, kind.Trainer: {"0"}}},
		"turns: that which is named": {there: gpus(8), placed: placed{kind.Inference: {Devices: []string{"3"}},
			kind.Trainer: one}, estimates: sleeping, want: dealt{kind.Inference: {"3"}, kind.Trainer: {"3"}}},
		"turns: one more for who wants it": {there: gpus(8), placed: placed{kind.Inference: one, kind.Trainer: two},
			estimates: sleeping, want: dealt{kind.Inference: {"0"}, kind.Trainer: {"0", "1"}}},
		"kept": {there: gpus(4), placed: placed{kind.Inference: one, kind.Trainer: one},
			kept: dealt{kind.Trainer: {"0"}}, want: dealt{kind.Inference: {"1"}, kind.Trainer: {"0"}}},
		"kept no longer": {there: gpus(2), placed: placed{kind.Inference: one, kind.Trainer: one},
			kept: dealt{kind.Trainer: {"6"}}, want: dealt{kind.Inference: {"0"}, kind.Trainer: {"1"}}},
		"kept too few": {there: gpus(2), placed: placed{kind.Trainer: two},
			kept: dealt{kind.Trainer: {"1"}}, want: dealt{kind.Trainer: {"0", "1"}}},
		"more than there are": {there: gpus(2), placed: placed{kind.Trainer: {GPUs: 4}},
			want: dealt{kind.Trainer: {"0", "1"}}, fault: "asks for 4 GPUs; this machine has 2 (0, 1)"},
		"a machine that is not known": {placed: placed{kind.Inference: one,
			kind.Trainer: {Devices: []string{"0"}}}, want: dealt{kind.Trainer: {"0"}}},
		"elsewhere": {there: gpus(1), placed: placed{kind.Inference: {GPUs: 4, Host: "far"},
			kind.Trainer: one}, want: dealt{kind.Trainer: {"0"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kept := sizing.Devices{}
			for k, names := range c.kept {
				kept[addr.Block{Kind: k, Plugin: "x", Name: "a"}] = names
			}
			result := world{machine: sizing.Machine{Devices: c.there}, placed: c.placed,
				estimates: c.estimates}.deal(kept)
			got := dealt{}
			for a, names := range result.Devices {
				got[a.Kind] = names
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("dealt %v, want %v", got, c.want)
			}
			faults := ""
			for _, f := range result.Findings {
				if f.Severity == "error" {
					faults += f.Summary
				}
			}
			if (c.fault == "") != (faults == "") || !strings.Contains(faults, c.fault) {
				t.Errorf("errors %q, want %q", faults, c.fault)
			}
		})
	}
}

// A plugin estimates its needs, and the reachable transports, for the GPUs that it will get.
func TestPluginsAreAskedOfTheGPUsThatTheyGet(t *testing.T) {
	t.Parallel()
	a := addr.Block{Kind: kind.Trainer, Plugin: "x", Name: "a"}
	b := &schema.Block{Addr: a}
	b.Meta.Placement = &sdk.Placement{GPUs: 1}
	var asked []string
	devices := sizing.Check(&schema.Recipe{Blocks: []*schema.Block{b}},
		func(b *schema.Block) (sdk.Estimate, []spec.Problem, error) {
			asked = append(asked, strings.Join(b.Meta.Placement.Devices, ","))
			return sdk.Estimate{}, nil, nil
		}, sizing.Machine{Devices: []string{"2"}}, nil).Devices
	if !slices.Equal(asked, []string{"", "2"}) || !slices.Equal(devices[a], []string{"2"}) {
		t.Errorf("asked of GPUs %q and dealt %v, want none and then 2", asked, devices)
	}
	if len(b.Meta.Placement.Devices) > 0 {
		t.Errorf("the recipe was changed: %v", b.Meta.Placement)
	}
}
