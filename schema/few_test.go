package schema_test

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/parse"
)

// What reports mistakes, such as fmt and an editor, is not flooded by a file that is nothing else.
func TestMistakesOfAFileAreBounded(t *testing.T) {
	t.Parallel()
	src := strings.Repeat("x = 1\n", 10_000)
	_, parsed := parse.File("a.hcl", []byte(src))
	_, loaded := schema.LoadSource("a.hcl", []byte(strings.Repeat("output \"o\" {\n  value = nope\n}\n", 10_000)),
		schema.Options{})
	for name, diags := range map[string]int{"parsed": len(parsed), "loaded": len(loaded)} {
		if diags < 100 || diags > 1000 {
			t.Errorf("%s: %d diagnostics", name, diags)
		}
	}
	if last := parsed[len(parsed)-1]; !strings.Contains(last.Detail, "more") || !parsed.HasErrors() {
		t.Errorf("it ends with %v", last)
	}
}
