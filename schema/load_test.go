package schema_test

import (
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
)

func TestTheDesignRecipeLoads(t *testing.T) {
	t.Parallel()
	r, diags := schema.Load("testdata/valid/design.hcl", schema.Options{Plugins: fakePlugins(t)})
	for _, d := range diags {
		t.Error(d)
	}
	for _, b := range r.Blocks {
		t.Log(b.Addr, b.Needs)
	}
	a, _ := addr.Parse("trainer.grpo.policy")
	v, diags := r.EvaluateOutputs(map[addr.Block]cty.Value{a: cty.ObjectVal(
		map[string]cty.Value{"checkpoint": cty.StringVal("/c")})})
	t.Log(v, diags)
}
