package script_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk/kit/script"
	"github.com/recipe-rl/recipe/sdk/kit/script/scripttest"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

const importing = `
import beside, torch
from recipe_sdk import Environment, Task
class Importing(Environment):
    "It imports a package, and a file of its own."
    def next(self): return Task("say a")
    def score(self, task, completion): return completion.text.count("a")
`

// A package is compiled once, not in each process: beside its sources, or in the user's cache where that is forbidden.
// Of an author's files, and of those that a block is started with, nothing is kept.
func TestPackagesAreCompiledOnce(t *testing.T) {
	for _, kept := range []string{"beside", "cache"} {
		t.Run(kept, func(t *testing.T) {
			python(t)
			_, packages, cache := plugintest.Uncompiled(t)
			t.Setenv("PYTHONPATH", packages)
			want := filepath.Join(packages, "torch", "__pycache__")
			if kept == "cache" {
				want = filepath.Join(cache, packages, "torch")
			} else {
				t.Setenv("PYTHONDONTWRITEBYTECODE", "")
			}
			dir := t.TempDir()
			write(t, dir, map[string]string{"importing.py": importing, "beside.py": "A = 1\n"})
			f, err := script.Loader{Folder: t.TempDir(), Environ: os.Environ()}.Load(t.Context(), "importing",
				filepath.Join(dir, "importing.py"))
			if err != nil {
				t.Fatal(err)
			}
			described := compiled(t, want)
			if len(described) != 1 {
				t.Errorf("describing it leaves %q in %s; want torch's __init__", described, want)
			}
			if err := os.RemoveAll(want); err != nil {
				t.Fatal(err)
			}
			t.Run("block", func(t *testing.T) {
				def := define(t, f)
				config, _ := scripttest.Body(t, def, nil)
				b := plugintest.Harness(t, def)
				b.Start(config)
				b.Ready()
			})
			if ran := compiled(t, want); len(ran) != 1 {
				t.Errorf("a block leaves %q in %s; want torch's __init__", ran, want)
			}
			for _, file := range append(compiled(t, dir), compiled(t, cache)...) {
				name, _, _ := strings.Cut(filepath.Base(file), ".")
				if name == "beside" || name == "importing" || strings.Contains(file, "/recipe_sdk/") {
					t.Errorf("%s is left", file)
				}
			}
		})
	}
}

// compiled lists the compiled files below a folder.
func compiled(t *testing.T, folder string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".pyc") {
			found = append(found, path)
		}
		if os.IsNotExist(err) {
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
