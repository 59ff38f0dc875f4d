package interpreter_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// python makes an executable file.
func python(t *testing.T, path string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	own := python(t, filepath.Join(dir, "own", "python3.12"), 0o700)
	venv := python(t, filepath.Join(dir, "venv", "bin", "python"), 0o700)
	active := python(t, filepath.Join(dir, "active", "bin", "python"), 0o700)
	python(t, filepath.Join(dir, "plain", "python"), 0o600)
	activated := func(name string) string {
		if name == "VIRTUAL_ENV" {
			return filepath.Join(dir, "active")
		}
		return ""
	}
	for name, c := range map[string]struct {
		runtime sdk.Runtime
		want    string
		problem string
	}{
		"an interpreter":             {sdk.Runtime{Python: own, Venv: "venv"}, own, ""},
		"relative to the recipe":     {sdk.Runtime{Python: "own/python3.12"}, own, ""},
		"a virtual environment":      {sdk.Runtime{Venv: "venv", Requirements: []string{"vllm"}}, venv, ""},
		"the activated one":          {sdk.Runtime{}, active, ""},
		"requirements not prepared":  {sdk.Runtime{Requirements: []string{"vllm"}}, "", "recipe init"},
		"no such interpreter":        {sdk.Runtime{Python: "own/none"}, "", "runtime { python"},
		"not executable":             {sdk.Runtime{Python: "plain/python"}, "", "runtime { python"},
		"a folder without a python":  {sdk.Runtime{Venv: "own"}, "", "runtime { python"},
		"a name that PATH lacks":     {sdk.Runtime{Python: "python-that-is-not-there"}, "", "runtime { python"},
		"a folder as an interpreter": {sdk.Runtime{Python: dir}, "", "runtime { python"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := interpreter.Find(c.runtime, sdk.Packages{}, dir, activated)
			if c.problem == "" {
				if err != nil || got != c.want {
					t.Fatalf("got %q, %v; want %q", got, err, c.want)
				}
				return
			}
			var e *sdk.Error
			if !errors.As(err, &e) || !strings.Contains(e.Remedy, c.problem) {
				t.Fatalf("got %v (%+v), want an error whose remedy mentions %q", err, e, c.problem)
			}
			want := map[bool]string{true: "runtime.python", false: "runtime.venv"}[c.runtime.Python != ""]
			if got := spec.PathString(e.Path); len(c.runtime.Requirements) == 0 && got != want {
				t.Errorf("it leads to %q, want %q", got, want)
			}
		})
	}
}
