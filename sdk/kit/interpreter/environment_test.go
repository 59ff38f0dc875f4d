package interpreter_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
)

// prepare makes an environment as `recipe init` does, without the packages.
func prepare(t *testing.T, e interpreter.Environment) interpreter.Environment {
	t.Helper()
	python(t, e.Executable(), 0o700)
	if err := e.Finish(); err != nil {
		t.Fatal(err)
	}
	return e
}

func environmentOf(t *testing.T, r sdk.Runtime, plugin sdk.Packages, dir string) (interpreter.Environment, bool) {
	t.Helper()
	e, managed, err := interpreter.Of(r, plugin, dir)
	if err != nil {
		t.Fatal(err)
	}
	return e, managed
}

// Not parallel: it changes the process's environment.
func TestPreparedEnvironments(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir()) // where the cache is on macOS
	nothing := func(string) string { return "" }
	plugin := sdk.Packages{Requirements: []string{"engine==1"}, Aliases: map[string]string{"a": "b"}}
	own := sdk.Runtime{Requirements: []string{"mine==2"}}

	var reported *sdk.Error
	if _, err := interpreter.Find(own, plugin, "", nothing); !errors.As(err, &reported) {
		t.Fatalf("requirements that were not prepared: %v; want an *sdk.Error", err)
	}
	e, managed := environmentOf(t, own, plugin, "")
	if !managed || len(e.Packages.Aliases) > 0 {
		t.Fatalf("a block with requirements gets %+v (%v); want its own, not the plugin's", e, managed)
	}
	python(t, e.Executable(), 0o700)
	if e.Ready() {
		t.Error("an environment without its last file counts as whole")
	}
	prepare(t, e)
	if got, err := interpreter.Find(own, plugin, "", nothing); err != nil || got != e.Executable() {
		t.Errorf("after it was prepared: %q, %v; want %q", got, err, e.Executable())
	}

	other, _ := environmentOf(t, sdk.Runtime{Requirements: own.Requirements, Python: "3.12"}, plugin, "")
	if other.Dir == e.Dir {
		t.Error("another Python for the same packages must be another environment")
	}

	def, managed := environmentOf(t, sdk.Runtime{}, plugin, "")
	if !managed {
		t.Fatal("a block without a runtime gets none of its plugin's packages")
	}
	before, err := interpreter.Find(sdk.Runtime{}, plugin, "", nothing)
	if err != nil || before == def.Executable() {
		t.Fatalf("before it was prepared: %q, %v; want python3 of PATH", before, err)
	}
	prepare(t, def)
	if got, err := interpreter.Find(sdk.Runtime{}, plugin, "", nothing); err != nil || got != def.Executable() {
		t.Errorf("a block without a runtime runs in %q, %v; want %q", got, err, def.Executable())
	}
	active := t.TempDir()
	activated := python(t, filepath.Join(active, "bin", "python"), 0o700)
	if got, err := interpreter.Find(sdk.Runtime{}, plugin, "", func(string) string { return active }); err != nil ||
		got != activated {
		t.Errorf("with VIRTUAL_ENV: %q, %v; want %q, which the user chose", got, err, activated)
	}
	if err := os.WriteFile(filepath.Join(def.Dir, "recipe-environment"), []byte("another\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if def.Ready() {
		t.Error("an environment of other packages counts as ready")
	}

	for name, r := range map[string]sdk.Runtime{"an interpreter": {Python: "/usr/bin/python3"},
		"a virtual environment": {Venv: "venv", Requirements: []string{"x"}}} {
		if _, managed := environmentOf(t, r, plugin, ""); managed {
			t.Errorf("%s is the user's own; nothing is to be prepared", name)
		}
	}
}
