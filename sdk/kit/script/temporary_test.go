package script_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/recipe-rl/recipe/sdk/kit/script"
)

// The folder in which a file is imported may lie below the file: a recipe tried in /tmp. It is no part of the file.
func TestAFileInTheFolderForTemporaryFiles(t *testing.T) {
	python(t)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	write(t, dir, map[string]string{"noted.py": noted, "beside.py": "A = 1\n"})
	loader := script.Loader{Folder: t.TempDir(), Environ: os.Environ()}
	f, err := loader.Load(t.Context(), "noted", filepath.Join(dir, "noted.py"))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Files) != 2 {
		t.Errorf("its files are %v, want noted.py and beside.py", f.Files)
	}
}
