package schema_test

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/parse"
)

// An editor loads a file again at every change, and keeps the parts of it that stay as they were. Each load has all of
// its budget.
func TestEachLoadOfAnEditorHasItsBudget(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	for name, value := range map[string]string{ // each uses more than half of what one load may
		"for":       "length([for a in range(300) : [for b in range(300) : b]])",
		"functions": "length([for a in local.t : length(local.t)])",
		"operators": "length([for a in local.t : a == local.t])",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src := "locals {\n t = range(750)\n n = " + value + "\n" +
				strings.Repeat("# long enough for a part\n", 1000) + "}\noutput \"n\" {\n  value = local.n > 0\n}\n"
			parts := &parse.Parts{}
			for i := range 2 {
				r, diags := schema.LoadSource("x.hcl", []byte(src), schema.Options{Parts: parts})
				if diags.HasErrors() || text(r.Outputs[0].Value) != "true" {
					t.Fatalf("load %d: %v %#v", i+1, diags, r.Outputs[0].Value)
				}
			}
		})
	}
}

// The largest recipe of the benchmarks, of 5,000 blocks, uses a seventieth of the budget. A list of 10,000 numbers in
// forty calls of functions uses two fifths of it.
func TestLargeRecipesAreFarFromTheBudget(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	opts := schema.Options{Plugins: fakePlugins(t)}
	if _, diags := schema.LoadSource("x.hcl", manyBlocks(5000), opts); diags.HasErrors() {
		t.Error(diags)
	}
	src := "locals {\n t = [" + strings.Repeat("1,", 10_000) + "]\n n = [" +
		strings.Repeat("length(local.t), \"${length(local.t)}\",", 20) + "]\n}\n"
	if _, diags := schema.LoadSource("x.hcl", []byte(src), schema.Options{}); diags.HasErrors() {
		t.Error(diags)
	}
}
