package schema_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/input"
)

// The arguments of a recipe give its values again: files in their order, secrets and the environment left out.
func TestArgumentsOfARecipe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := []string{filepath.Join(dir, "z.hcl"), filepath.Join(dir, "a.hcl")}
	for i, text := range []string{"one = 1\ntwo = 1\n", "one = 2\ntoken = \"hunter22\"\n"} {
		if err := os.WriteFile(files[i], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const recipe = `
variable "one" { type = number }
variable "two" { type = number }
variable "text" { type = string }
variable "here" { type = string }
variable "left" { default = "x" }
variable "token" {
  type      = string
  sensitive = true
}
`
	load := func(o schema.Options) *schema.Recipe {
		t.Helper()
		r, diags := schema.LoadSource("x.hcl", []byte(recipe), o)
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		return r
	}
	o := schema.Options{VarFiles: files, Environ: []string{"RECIPE_VAR_here=b"},
		Vars: map[string]input.Value{"text": {Raw: "2024-01-01"}, "token": {Raw: "hunter22"}}}
	first := load(o)
	// `two` has its value from the first file, `one` from the second: the order of the files decides.
	want := []string{"--var", `text=2024-01-01`, "--var", "token=…", "--var-file", files[0], "--var-file", files[1]}
	if got := first.Arguments(); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	planned, err := first.Planned()
	if err != nil {
		t.Fatal(err)
	}
	// A saved plan has its values whatever files and environment say later.
	want = []string{"--var", "here=b", "--var", "one=2", "--var", `text=2024-01-01`, "--var", "token=…", "--var", "two=1"}
	saved := load(schema.Options{Planned: planned, Vars: map[string]input.Value{"token": {Raw: "hunter22"}}})
	if got := saved.Arguments(); !slices.Equal(got, want) {
		t.Errorf("of a saved plan: got  %q\nwant %q", got, want)
	}
}
