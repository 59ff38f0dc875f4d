package doctor

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
)

// What a recipe brings is neither run nor shown this user's keys where nobody has allowed it. Not parallel: it changes
// the process's environment.
func TestDoctorTrustsNothingOfARecipe(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("AWS_ACCESS_KEY_ID", "canary")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "canary")
	dir := t.TempDir()
	named := file(t, filepath.Join(dir, "py"))
	venv := filepath.Join(dir, "venv")
	file(t, filepath.Join(venv, "bin", "python"))
	if err := os.WriteFile(filepath.Join(venv, "pyvenv.cfg"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/usr/bin/env", link); err != nil {
		t.Fatal(err)
	}
	m := healthy(dir)
	m.Allow = nil
	m.LookupEnv = os.LookupEnv
	m.Run = func(_ context.Context, name string, _ ...string) (string, error) {
		if strings.HasPrefix(name, dir) && name != link {
			t.Errorf("%s was run", name)
		}
		return `{"engine": "2"}`, nil
	}
	r := &schema.Recipe{Dir: dir}
	for name, c := range map[string]struct {
		runtime sdk.Runtime
		sets    map[string]cty.Value
		foreign bool
	}{
		"an interpreter of the folder": {runtime: sdk.Runtime{Python: "./py"}, foreign: true},
		"the same by its path":         {runtime: sdk.Runtime{Python: named}, foreign: true},
		"a virtual environment":        {runtime: sdk.Runtime{Venv: "venv"}, foreign: true},
		"one by a variable":            {sets: map[string]cty.Value{"VIRTUAL_ENV": cty.StringVal(venv)}, foreign: true},
		"a link to the system's":       {runtime: sdk.Runtime{Python: link}},
	} {
		b := &schema.Block{Addr: addr.Block{Kind: "inference", Plugin: "x", Name: "p"}}
		b.Meta.Environment = c.sets
		if c.runtime.Python+c.runtime.Venv != "" {
			b.Meta.Runtime = &c.runtime
		}
		packages := sdk.Packages{Requirements: []string{"engine==2"}, Needs: []string{"engine"}}
		state, needs := runtimeOf(m, r, b, func(*schema.Block) sdk.Packages { return packages })
		if !needs || state.err != nil {
			t.Fatalf("%s: %v, %v", name, needs, state.err)
		}
		f := pythonOf(t.Context(), m, "r.hcl", state)
		if refused := strings.Contains(f.Found, "not trusted"); refused != c.foreign {
			t.Errorf("%s: %+v, want it refused: %v", name, f, c.foreign)
		}
	}

	asked := false
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer s.Close()
	b := &schema.Block{Addr: addr.Block{Kind: "trainer", Plugin: "x", Name: "p"}}
	b.Value = cty.ObjectVal(map[string]cty.Value{"store": cty.StringVal("s3://runs?region=here&endpoint=" + s.URL)})
	if f, _ := storeOf(t.Context(), m, b); asked || !strings.Contains(f.Found, "not trusted") {
		t.Errorf("a store at an address of the recipe: asked %v, %+v", asked, f)
	}
}
