package sizing_test

import (
	"reflect"
	"testing"

	"github.com/recipe-rl/recipe/engine/sizing"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// TestNondeterminism: what a plugin says, that it says nothing, and what only all blocks together show.
func TestNondeterminism(t *testing.T) {
	t.Parallel()
	api := addr.Block{Kind: kind.Trajectories, Plugin: "queue", Name: "a"}
	block := func(k kind.Kind, plugin, name string, needs ...schema.Need) *schema.Block {
		return &schema.Block{Addr: addr.Block{Kind: k, Plugin: plugin, Name: name}, Needs: needs}
	}
	posts := schema.Need{On: api, Condition: schema.Healthy}
	says := map[string]string{"seeded": "", "timed": "one\ntwo"}
	size := func(b *schema.Block) (sdk.Estimate, []spec.Problem, error) {
		if causes, ok := says[b.Addr.Plugin]; ok {
			return sdk.Estimate{Facts: map[string]string{"nondeterminism": causes}}, nil, nil
		}
		return sdk.Estimate{}, nil, nil
	}
	external := block(kind.Inference, "seeded", "far")
	external.Meta.External = &decode.External{}
	r := &schema.Recipe{Blocks: []*schema.Block{
		{Addr: api}, external, block(kind.Environment, "seeded", "one", posts), block(kind.Trainer, "timed", "b"),
		block(kind.Sync, "other", "c"), block(kind.Executor, "ssh", "d"),
	}}
	got := func() map[string][]string {
		out := map[string][]string{}
		for a, causes := range sizing.Check(r, size, sizing.Machine{}, nil).Nondeterminism {
			if len(causes) > 0 {
				out[a.String()] = causes
			}
		}
		return out
	}
	want := map[string][]string{
		"inference.seeded.far": {"it runs elsewhere, so this plan does not know"},
		"trainer.timed.b":      {"one", "two"},
		"sync.other.c":         {"the plugin other does not say whether equal seeds give equal results"},
	}
	if got := got(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %q", got)
	}
	r.Blocks = append(r.Blocks, block(kind.Environment, "seeded", "two", posts, posts))
	want[api.String()] = []string{"2 environments fill its batches, so time decides whose groups are in which"}
	if got := got(); !reflect.DeepEqual(got, want) {
		t.Errorf("with two environments: got %q", got)
	}
}
