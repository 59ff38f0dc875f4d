package schema_test

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/schema"
)

// An editor loads a file again at every change, and keeps the parts of it that stay as they were. Each load has all of
// its budget.
func TestEachLoadOfAnEditorHasItsBudget(t *testing.T) {
	t.Parallel()
	src := "locals {\n t = range(700)\n n = [for a in local.t : a == local.t ? 1 : length(local.t)]\n" +
		strings.Repeat("# long enough for a part\n", 1000) + "}\noutput \"n\" {\n  value = local.n[699]\n}\n"
	parts := &schema.Parts{}
	for i := range 5 {
		r, diags := schema.LoadSource("x.hcl", []byte(src), schema.Options{Parts: parts})
		if diags.HasErrors() || text(r.Outputs[0].Value) != "700" {
			t.Fatalf("load %d: %v %#v", i+1, diags, r.Outputs[0].Value)
		}
	}
}
