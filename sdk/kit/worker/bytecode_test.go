package worker

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

func TestCompiledPackagesAreKeptForTheNextStart(t *testing.T) {
	python, _, cache := plugintest.Uncompiled(t)
	made := New(func(sdk.Request[Config]) (Program, error) { return Program{}, nil })
	of := func() (found []string) {
		for _, v := range made.environ(python) {
			if strings.HasPrefix(v, "PYTHONPYCACHEPREFIX=") || strings.HasPrefix(v, "PYTHONDONTWRITEBYTECODE=") {
				found = append(found, v)
			}
		}
		slices.Sort(found)
		return found
	}
	want := []string{"PYTHONDONTWRITEBYTECODE=", "PYTHONPYCACHEPREFIX=" + cache}
	if got := of(); !slices.Equal(got, want) {
		t.Errorf("a worker gets %q, want %q", got, want)
	}
	made.req.Environment = map[string]string{"PYTHONDONTWRITEBYTECODE": "1"}
	want[0] = "PYTHONDONTWRITEBYTECODE=1"
	if got := of(); !slices.Equal(got, want) {
		t.Errorf("with the recipe's own variable a worker gets %q, want %q", got, want)
	}
}

// What was compiled of a block's own sources would be looked for by nobody after the run.
func TestCompiledFilesOfTheWorkerGoWithIt(t *testing.T) {
	_, _, cache := plugintest.Uncompiled(t)
	tr, h, req := start(t, "", nil)
	own := filepath.Join(cache, req.Dir, "python", "worker", "__main__.cpython-312.pyc")
	installed := filepath.Join(cache, "opt", "torch", "__init__.cpython-312.pyc")
	for _, file := range []string{own, installed} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := tr.Run(t.Context(), req, h); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(own); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", own, err)
	}
	if _, err := os.Stat(installed); err != nil {
		t.Errorf("a package has to be compiled again: %v", err)
	}
}
