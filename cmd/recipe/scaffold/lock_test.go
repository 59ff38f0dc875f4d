package scaffold_test

import (
	"archive/zip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const locked = `# /// script
# requires-python = ">=3.10"
# dependencies = ["recipe-letters%s"]
#
# [tool.uv]
# no-index = true
# find-links = ["wheels"]
# ///
"""An environment that needs a package."""

import recipe_letters
from recipe_sdk import Completion, Environment, Task


class Words(Environment):
    """Answers are to have a letter."""

    defaults = {"max_tokens": 4, "group_size": 2}

    def setup(self) -> None:
        self.log(f"version {recipe_letters.VERSION}", "warn")

    def next(self) -> Task:
        return Task("12>")

    def score(self, task: Task, completion: Completion) -> float:
        return recipe_letters.count(completion.text)
`

const lockedRecipe = `recipe {
  name = "words"
  required_plugins {
    words = { source = "./words.py" }
  }
}
inference "tiny" "policy" {}
environment "words" "train" { inference = inference.tiny.policy }
trainer "tiny" "policy" { environments = [environment.words.train] }
`

// The packages of a file are those of its lock, made by the real uv from a folder of wheels: found again, kept when
// there is a newer one, refused and locked again when the list has changed.
//
//docs:survival.md the interface of environments changes, and their packages are not installed
func TestThePackagesOfAFileAreLocked(t *testing.T) {
	t.Parallel()
	a := newAuthor(t)
	a.withUV()
	a.environ = append(a.environ, "RECIPE_TRUST=all") // the file is written by hand, again and again
	wheel(t, a.dir, "1.0")
	write := func(version string) { // what the file asks for
		t.Helper()
		for name, text := range map[string]string{"words.py": fmt.Sprintf(locked, version), "words.hcl": lockedRecipe} {
			if err := os.WriteFile(filepath.Join(a.dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	lock := func() string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(a.dir, "words.py.lock"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	runs := func(version string) {
		t.Helper()
		out := a.run(a.dir, "recipe", "env", "try", "words.hcl", "environment.words.train", "-n", "1")
		if !strings.Contains(out, "version "+version) || !strings.Contains(out, "1 prompt, 2 completions") {
			t.Errorf("want version %s of the package:\n%s", version, out)
		}
	}

	write(">=1.0")
	a.refused(a.dir, "Run recipe init", "recipe", "validate", "words.hcl")
	a.run(a.dir, "recipe", "init", "words.hcl")
	first := lock()
	runs("1.0")

	wheel(t, a.dir, "1.1")
	if out := a.run(a.dir, "recipe", "init", "words.hcl"); lock() != first || strings.Contains(out, "created") {
		t.Errorf("a newer version in the index changed the lock or made another environment:\n%s", out)
	}
	runs("1.0")

	write("==1.1")
	a.refused(a.dir, "Run recipe init", "recipe", "validate", "words.hcl")
	a.run(a.dir, "recipe", "init", "words.hcl")
	second := lock()
	if second == first {
		t.Error("the changed list was not locked again")
	}
	runs("1.1")

	write("==2.0")
	a.refused(a.dir, "recipe-letters==2.0", "recipe", "init", "words.hcl")
	if lock() != second {
		t.Error("a lock that could not be made replaced the one that was there")
	}
}

// withUV gives the author the uv of the tests, without a network.
func (a *author) withUV() {
	a.t.Helper()
	found, err := filepath.Glob(filepath.Join(sources, ".cache", "uv-*", "bin", "uv"))
	if err != nil || len(found) == 0 {
		a.t.Skip("no .cache/uv-*; scripts/venv.sh makes it")
	}
	bin := a.t.TempDir()
	if err := os.Symlink(found[len(found)-1], filepath.Join(bin, "uv")); err != nil {
		a.t.Fatal(err)
	}
	compiled, err := exec.CommandContext(a.t.Context(), "go", "env", "GOCACHE").Output()
	if err != nil {
		a.t.Fatal(err)
	}
	// Go's own cache stays: without it a module compiles all that it imports anew.
	a.environ = append(a.environ, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "UV_OFFLINE=1",
		"UV_PYTHON_DOWNLOADS=never", "XDG_CACHE_HOME="+a.t.TempDir(), "UV_CACHE_DIR="+a.t.TempDir(),
		"GOCACHE="+strings.TrimSpace(string(compiled)))
}

// wheel writes a version of the package recipe-letters into the folder wheels.
func wheel(t *testing.T, dir, version string) {
	t.Helper()
	wheelOf(t, dir, "recipe_letters", version, "recipe_letters.py",
		"VERSION = '"+version+"'\ndef count(text): return float(len(text))\n")
}

// wheelOf writes a version of a package with one file into the folder wheels.
func wheelOf(t *testing.T, dir, name, version, file, text string) {
	t.Helper()
	info := name + "-" + version + ".dist-info/"
	path := filepath.Join(dir, "wheels", name+"-"+version+"-py3-none-any.whl")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := zip.NewWriter(f)
	for _, part := range [][2]string{
		{file, text},
		{info + "METADATA", "Metadata-Version: 2.1\nName: " + name + "\nVersion: " + version + "\n"},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "RECORD", file + ",,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n"},
	} {
		packed, err := w.Create(part[0])
		if err == nil {
			_, err = packed.Write([]byte(part[1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
