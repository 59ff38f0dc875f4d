package script

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// TestACopiedFileIsFoundWhereItWasMovedTo copies a file, moves the copy as another machine gets it, and reads it there.
func TestACopiedFileIsFoundWhereItWasMovedTo(t *testing.T) {
	t.Parallel()
	here := t.TempDir()
	texts := map[string]string{"task.py": "import help", "help.py": "x = 1", "pyproject.toml": "[project]",
		"uv.lock": "lock"}
	f := &File{Name: "task", Path: filepath.Join(here, "task.py"), Project: filepath.Join(here, "pyproject.toml"),
		Files: map[string]string{}}
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(here, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if filepath.Ext(name) == ".py" {
			f.Files[name] = digestOf(text)
		}
	}
	for name, c := range map[string]struct{ inside, file, project string }{
		"the copy alone":   {"", "plugin/source/task.py", "plugin/source/pyproject.toml"},
		"the file as well": {"../recipe/task.py", "recipe/task.py", "recipe/pyproject.toml"},
	} {
		made, there := filepath.Join(t.TempDir(), "plugin"), t.TempDir()
		record, err := f.CopyTo(made, c.inside)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := os.Rename(made, filepath.Join(there, "plugin")); err != nil {
			t.Fatal(err)
		}
		got, err := Read(filepath.Join(there, "plugin", filepath.Base(record)))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got.Path != filepath.Join(there, c.file) || got.Project != filepath.Join(there, c.project) {
			t.Errorf("%s: the file is %s of project %s", name, got.Path, got.Project)
		}
		for file, text := range texts {
			content, err := os.ReadFile(filepath.Join(there, "plugin", "source", file))
			if err != nil || string(content) != text {
				t.Errorf("%s: %s is %q, %v", name, file, content, err)
			}
		}
		own, err := json.Marshal(got.Files)
		if want, _ := json.Marshal(f.Files); err != nil || string(own) != string(want) {
			t.Errorf("%s: its files are %s", name, own)
		}
	}
}
