package lsp

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// folder writes files and returns their folder.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestModulesThatCallEachOther makes modules each of which calls a hundred others. To find the recipe that a file is
// part of, each call is looked at once, not once for each of the files.
func TestModulesThatCallEachOther(t *testing.T) {
	t.Parallel()
	const modules, calls = 250, 100
	files := map[string]string{}
	for i := range modules {
		var b strings.Builder
		for j := range calls {
			fmt.Fprintf(&b, "module \"m%d\" {\n  source = \"../m%d\"\n}\n", j, (i+j+1)%modules)
		}
		files[fmt.Sprintf("m%d/main.hcl", i)] = b.String()
	}
	p := newProject(Options{})
	p.folders = []string{folder(t, files)}
	path := filepath.Join(p.folders[0], "m0", "main.hcl")
	s := &snapshot{documents: map[string]*document{path: {path: path, text: newText(files["m0/main.hcl"])}}}
	began := time.Now()
	roots := p.rootsOf(path, p.callers(s))
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %s", took)
	}
	if len(roots) != 1 || roots[0] != path {
		t.Errorf("got %q", roots)
	}
}

// TestAModuleOfManyRecipes is checked with some of the recipes that call it: each of them is loaded for that.
func TestAModuleOfManyRecipes(t *testing.T) {
	t.Parallel()
	files := map[string]string{"m/main.hcl": ""}
	for i := range 2 * maxRoots {
		files[fmt.Sprintf("r%d.hcl", i)] = "module \"m\" {\n  source = \"./m\"\n}\n"
	}
	p := newProject(Options{})
	p.folders = []string{folder(t, files)}
	path := filepath.Join(p.folders[0], "m", "main.hcl")
	if roots := p.rootsOf(path, p.callers(&snapshot{})); len(roots) != maxRoots {
		t.Errorf("%d recipes are loaded", len(roots))
	}
}
