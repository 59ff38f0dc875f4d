package scaffold_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
)

const projectFile = `[project]
name = "words"
version = "0.1.0"
requires-python = ">=3.10"
dependencies = ["recipe-letters>=1.0"]

[[tool.uv.index]]
url = "%s/simple"
default = true
`

const projectPlugin = `"""An environment of several modules that needs a package."""

from recipe_sdk import Completion, Environment, Task
from scoring.letters import VERSION, rate


class Words(Environment):
    """Answers are to have a letter."""

    defaults = {"max_tokens": 4, "group_size": 2}

    def setup(self) -> None:
        self.log(f"version {VERSION}", "warn")

    def next(self) -> Task:
        return Task("12>")

    def score(self, task: Task, completion: Completion) -> float:
        return rate(completion.text)
`

// TestAPythonProjectFromARegistry: a project of several modules, with packages from an index and their lock, is
// published by its author, and used by somebody else, with nothing of the author's, at the versions of the lock.
func TestAPythonProjectFromARegistry(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	source := "oci://" + strings.TrimPrefix(server.URL, "http://") + "/acme/words"
	wheels := t.TempDir()
	index := httptest.NewServer(packageIndex(t, wheels))
	t.Cleanup(index.Close)
	wheel(t, wheels, "1.0")

	project := newAuthor(t)
	project.withUV()
	project.environ = append(project.environ, "UV_OFFLINE=0")
	for name, text := range map[string]string{"words/pyproject.toml": fmt.Sprintf(projectFile, index.URL),
		"words/words.py": projectPlugin, "words/scoring/__init__.py": "", "words/scoring/letters.py": "" +
			"from recipe_letters import VERSION, count\n\n\ndef rate(text: str) -> float:\n    return count(text)\n"} {
		path := filepath.Join(project.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	project.run(project.dir, "recipe", "plugin", "build", "words", "--version", "1.0.0", "-o", "dist")
	project.run(project.dir, "recipe", "plugin", "push", "dist", source)
	if err := os.RemoveAll(filepath.Join(project.dir, "words")); err != nil {
		t.Fatal(err)
	}
	wheel(t, wheels, "1.1") // the lock of the package counts

	user := newAuthor(t)
	user.withUV()
	user.environ = append(user.environ, "UV_OFFLINE=0", "HOME="+t.TempDir(), "RECIPE_TRUST=all")
	recipe := strings.Replace(lockedRecipe, `source = "./words.py"`, `source = "`+source+`"`, 1)
	if err := os.WriteFile(filepath.Join(user.dir, "words.hcl"), []byte(recipe), 0o600); err != nil {
		t.Fatal(err)
	}
	user.refused(user.dir, "it is not locked", "recipe", "validate", "words.hcl")
	user.environ = append(user.environ, "RECIPE_TRUST=")
	user.refused(user.dir, "Not checked: not trusted", "recipe", "init", "words.hcl")
	user.environ = append(user.environ, "RECIPE_TRUST=all")
	user.run(user.dir, "recipe", "init", "words.hcl")
	out := user.run(user.dir, "recipe", "env", "try", "words.hcl", "environment.words.train", "-n", "1")
	if !strings.Contains(out, "version 1.0") || !strings.Contains(out, "1 prompt, 2 completions") {
		t.Errorf("the environment does not run with the author's lock:\n%s", out)
	}
	if out := user.run(user.dir, "recipe", "plugin", "verify", "words.hcl"); !strings.Contains(out, "is as locked") {
		t.Errorf("after a run the package is another:\n%s", out)
	}
}

// packageIndex serves the wheels of recipe-letters in a folder as a Python package index (PEP 503).
func packageIndex(t *testing.T, dir string) http.Handler {
	t.Helper()
	mux := http.NewServeMux()
	files := os.DirFS(dir)
	mux.Handle("GET /files/", http.StripPrefix("/files/", http.FileServerFS(files)))
	mux.HandleFunc("GET /simple/recipe-letters/", func(w http.ResponseWriter, _ *http.Request) {
		found, err := filepath.Glob(filepath.Join(dir, "wheels", "*.whl"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		for _, path := range found {
			name := filepath.Base(path)
			_, _ = fmt.Fprintf(w, "<a href=\"/files/wheels/%[1]s\">%[1]s</a>\n", name)
		}
	})
	return mux
}
