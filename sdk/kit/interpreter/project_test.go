package interpreter_test

import (
	"path/filepath"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
)

func TestReadMetadata(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text  string
		needs bool
		fails bool
	}{
		"none":      {"import os\n", false, false},
		"a package": {"# /// script\n# dependencies = [\"x\"]\n# ///\n", true, false},
		"several lines": {"x = 1\n# /// script\n# name = \"x\"\n# dependencies = [\n#   'a>1',\n# ]\n# ///\n", true,
			false},
		"no package":    {"# /// script\n# requires-python = \">=3.11\"\n# dependencies = [\n# ]\n# ///\n", false, false},
		"left out":      {"# /// script\n# dependencies = [\n#   # \"x\",\n# ]\n# ///", false, false},
		"no end":        {"# /// script\n# dependencies = [\"x\"]\nimport os\n", false, true},
		"Windows":       {"# /// script\r\n# dependencies = [\"x\"]\r\n# ///\r\n", true, false},
		"another block": {"# /// other\n# dependencies = [\"x\"]\n# ///\n", false, false},
	} {
		needs, err := interpreter.ReadMetadata([]byte(c.text))
		if needs != c.needs || (err != nil) != c.fails {
			t.Errorf("%s: %v, %v; want %v and an error: %v", name, needs, err, c.needs, c.fails)
		}
	}
}

func FuzzReadMetadata(f *testing.F) {
	f.Add("# /// script\n# dependencies = [\"x\"]\n# ///\n")
	f.Add("# /// script\n#\n")
	f.Fuzz(func(t *testing.T, text string) {
		if needs, err := interpreter.ReadMetadata([]byte(text)); needs && err != nil {
			t.Error("both packages and an error")
		}
	})
}

// The environment of a project is that of its metadata and its lock, not of its code.
func TestTheLockNamesTheEnvironment(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "words.py")
	digest := func(metadata, code, lock string) string {
		t.Helper()
		files(t, dir, map[string]string{"words.py": "# /// script\n# " + metadata + "\n# ///\n" + code,
			"words.py.lock": lock})
		e, managed, err := interpreter.Of(sdk.Runtime{}, sdk.Packages{Project: path}, dir)
		if err != nil || !managed {
			t.Fatalf("managed %v, %v", managed, err)
		}
		return e.Dir
	}
	first := digest("dependencies = ['x']", "a = 1\n", "1")
	for name, other := range map[string]string{"metadata": digest("dependencies = ['y']", "a = 1\n", "1"),
		"the lock": digest("dependencies = ['x']", "a = 1\n", "2")} {
		if other == first {
			t.Errorf("a change of %s makes no other environment", name)
		}
	}
	if digest("dependencies = ['x']", "a = 2\n", "1") != first {
		t.Error("a change of the code makes another environment")
	}
	_, err := interpreter.Find(sdk.Runtime{}, sdk.Packages{Project: path}, dir, func(string) string { return "" })
	if err == nil {
		t.Error("an interpreter was found although no environment has been made")
	}
	if interpreter.LockFile(filepath.Join(dir, "pyproject.toml")) != filepath.Join(dir, "uv.lock") {
		t.Error("the lock of a pyproject.toml is uv.lock")
	}
}
