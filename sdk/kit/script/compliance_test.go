package script_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/script"
	"github.com/recipe-rl/recipe/sdk/kit/script/scripttest"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// python skips a test on a machine without Python.
func python(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not in PATH")
	}
	return path
}

// load describes a file of testdata, as the engine does.
func load(t *testing.T, file string) *script.File {
	t.Helper()
	python(t)
	path, err := filepath.Abs(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	f, err := script.Loader{Folder: t.TempDir(), Environ: os.Environ()}.Load(t.Context(), "words", path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func define(t testing.TB, f *script.File) *sdk.Definition {
	t.Helper()
	def, err := f.Define()
	if err != nil {
		t.Fatal(err)
	}
	return def
}

func TestAnEnvironmentInPythonComplies(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	def := define(t, load(t, "words.py"))
	groups := func(t *testing.T) (any, *plugintest.Trajectories) { return scripttest.Body(t, def, nil) }
	plugintest.Compliance(t, def, plugintest.Suite{
		Config: func(t *testing.T) any { c, _ := groups(t); return c },
		Groups: groups,
		Bad: map[string]func(*testing.T) any{
			"setup fails": func(t *testing.T) any {
				c, _ := scripttest.Body(t, def, map[string]cty.Value{"letter": cty.StringVal("x")})
				return c
			},
		},
	})
}
