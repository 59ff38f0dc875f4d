//go:build e2e

package e2e

import (
	"path/filepath"
	"testing"
)

// cached is a folder of .cache by its own path: the cache, and each folder in it, may be a link to where it is shared.
// A host or pod that is given this folder alone has nothing at the path of a link.
func cached(t testing.TB, name string) string {
	t.Helper()
	link, err := filepath.Abs(filepath.Join("..", ".cache", name))
	if err != nil {
		t.Fatal(err)
	}
	path, err := filepath.EvalSymlinks(link)
	if err != nil { // not there: who reads it says so, and not every run does
		return link
	}
	return path
}

// environmentPython is the interpreter of the environment that scripts/venv.sh NAME makes.
func environmentPython(t testing.TB, name string) string {
	t.Helper()
	return filepath.Join(cached(t, "venv-"+name), "bin", "python")
}

// smolLM2 is the model that scripts/model.sh makes.
func smolLM2(t testing.TB) string {
	t.Helper()
	return filepath.Join(cached(t, "models"), "smollm2-135m")
}

// foldersOf are those that a machine without .cache needs for an interpreter of it and the model: to run, and to read.
func foldersOf(t *testing.T, interpreter string) []string {
	t.Helper()
	prefix := command(t, interpreter, "-c", "import sys; print(sys.base_prefix)")
	return []string{prefix, filepath.Dir(filepath.Dir(interpreter)), filepath.Dir(smolLM2(t))}
}
