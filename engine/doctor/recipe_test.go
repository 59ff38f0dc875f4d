package doctor_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/doctor"
	"github.com/recipe-rl/recipe/schema"
)

func TestTheFirstErrorOfARecipe(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "none.hcl")
	r, diags := schema.Load(missing, schema.Options{})
	f := doctor.Recipe(missing, r, diags)
	if want := "has 1 error, the first: Recipe not found; "; f.Verdict != doctor.Fail || !strings.Contains(f.Found, want) {
		t.Errorf("a recipe that is not there: %+v, want %q", f, want)
	}
	r, diags = schema.LoadSource("x.hcl", []byte("locals { a = nope }"), schema.Options{})
	f = doctor.Recipe("x.hcl", r, diags)
	if want := "has 1 error, the first: x.hcl:1,14-18: "; f.Verdict != doctor.Fail || !strings.Contains(f.Found, want) {
		t.Errorf("a recipe with an error: %+v, want %q", f, want)
	}
}
