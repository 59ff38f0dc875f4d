package schema_test

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/schema"
)

// The name of a recipe's file becomes that of the run's folder, unless the recipe has a name.
func TestAFileWithALongNameNeedsAnotherForItsRun(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		file, src string
		long      bool
	}{
		{strings.Repeat("a", 200) + ".hcl", "", false},
		{strings.Repeat("a", 201) + ".hcl", "", true},
		{strings.Repeat("é", 34) + ".hcl", "", true},
		{strings.Repeat("é", 34) + ".hcl", `recipe { name = "short" }`, false},
	} {
		_, diags := schema.LoadSource(test.file, []byte(test.src), schema.Options{})
		if got := strings.Contains(diags.Error(), "Name of the file too long"); got != test.long {
			t.Errorf("%s with %q: got %v", test.file, test.src, diags)
		}
	}
}
