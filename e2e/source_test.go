package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// source is a folder of recipes without the files of runs: `make demo` may be running in it.
type source struct{ fs.FS }

func (s source) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(s.FS, name)
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == ".recipe" }), err
}

func TestRecipesAreCopiedWhileOneOfThemRuns(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), t.TempDir()
	for _, dir := range []string{filepath.Join(from, ".recipe", "quickstart"), filepath.Join(from, "environments")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// A named pipe cannot be copied, like the engine's socket.
	if err := syscall.Mkfifo(filepath.Join(from, ".recipe", "quickstart", "engine.sock"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(from, "environments", "a.py"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(to, source{os.DirFS(from)}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(to, "environments", "a.py")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(to, ".recipe")); err == nil {
		t.Error("what a run left was copied")
	}
}
