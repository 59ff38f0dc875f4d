package script_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk/kit/script"
)

const environmentInIt = `
from recipe_sdk import Environment, Task
class Words(Environment):
    "Words."
    version = str(A)
    def next(self): return Task("a")
    def score(self, task, completion): return 0
`

// Of a file's folder Python imports what was allowed, as source, and nothing in place of its own modules.
func TestOnlyAllowedFilesAreImported(t *testing.T) {
	t.Parallel()
	path := python(t)
	for name, c := range map[string]struct {
		text    string
		allowed []string // nil: all
		version string
		wrong   string // expected of the error
	}{
		"one that is allowed": {text: "from beside import A", allowed: []string{"words.py", "beside.py"}, version: "1"},
		"one that is not": {text: "from beside import A", allowed: []string{"words.py"},
			wrong: "was not allowed to run"},
		"by a name made at runtime": {text: "A = __import__('bes' + 'ide').A", allowed: []string{"words.py"},
			wrong: "was not allowed to run"},
		"all are": {text: "A = __import__('bes' + 'ide').A", version: "1"},
		"instead of Python's own": {text: "A = getattr(__import__('color' + 'sys'), 'A', 3)", allowed: []string{"words.py"},
			version: "3"},
		"a folder of one": {text: "from pkg.inner import A", allowed: []string{"words.py", "pkg/__init__.py"},
			wrong: "was not allowed to run"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "pkg"), 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, dir, map[string]string{"words.py": c.text + environmentInIt, "beside.py": "A = 1\n",
				"colorsys.py":     "A = 2\n",
				"pkg/__init__.py": "", "pkg/inner.py": "A = 4\n", "other.py": "A = 5\n"})
			poison(t, path, dir)
			l := script.Loader{Folder: t.TempDir(), Environ: os.Environ()}
			if c.allowed != nil {
				l.Allow = func(string, string) (files []string, err error) {
					for _, f := range c.allowed {
						files = append(files, filepath.Join(dir, f))
					}
					return files, nil
				}
			}
			f, err := l.Load(t.Context(), "words", filepath.Join(dir, "words.py"))
			switch {
			case c.wrong != "":
				if err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("got %v, want an error with %q", err, c.wrong)
				}
			case err != nil:
				t.Error(err)
			case f.Description.Version != c.version:
				t.Errorf("it imported version %s, want %s", f.Description.Version, c.version)
			}
		})
	}
}

// poison puts a compiled file of another source beside beside.py, in the form that Python does not compare with it.
func poison(t *testing.T, python, dir string) {
	t.Helper()
	const program = `import py_compile, importlib.util as u, sys
py_compile.compile("other.py", cfile=u.cache_from_source("beside.py"), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)`
	cmd := exec.CommandContext(t.Context(), python, "-c", program)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if found := compiled(t, filepath.Join(dir, "__pycache__")); len(found) != 1 {
		t.Fatalf("compiled files %v", found)
	}
}
