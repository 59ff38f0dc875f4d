package schema_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/recipe-rl/recipe/schema"
)

func TestEnvironIsWhatTheRecipeReads(t *testing.T) {
	t.Parallel()
	src := `
variable "name" {
  type    = string
  default = "COMPUTED"
}
locals {
  plain    = env("PLAIN")
  computed = env(var.name)
  absent   = env("ABSENT", "default")
  never    = [for x in [] : env("NEVER")]
  text     = "a ${env("IN_TEXT")} b"
}
`
	all := []string{"PLAIN=1", "COMPUTED=2", "NEVER=3", "IN_TEXT=4", "RECIPE_VAR_name=COMPUTED", "RECIPE_VAR_other=5",
		"OTHER=6", "HOME=/h", "PATH=/bin"}
	r, diags := schema.LoadSource(filepath.Join(t.TempDir(), "r.hcl"), []byte(src), schema.Options{Environ: all})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	want := []string{"PLAIN=1", "COMPUTED=2", "NEVER=3", "IN_TEXT=4", "RECIPE_VAR_name=COMPUTED"}
	got := r.Environ(all)
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	r, diags = schema.LoadSource("r.hcl", []byte(`locals { home = pathexpand("~/x") }`), schema.Options{Environ: all})
	if diags.HasErrors() || !slices.Equal(r.Environ(all), []string{"HOME=/h"}) {
		t.Errorf("got %v (%v), want HOME", r.Environ(all), diags)
	}
}
