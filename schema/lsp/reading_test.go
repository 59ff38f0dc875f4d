package lsp

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestOneReadingOfAFile: an editor that opens a file asks several things at once, and reading takes much of its size.
func TestOneReadingOfAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.hcl")
	d := &document{path: path, text: newText("locals {\n" + strings.Repeat("  a = [b, c]\n", 10_000) + "}\n")}
	p, s := newProject(Options{}), &snapshot{documents: map[string]*document{path: d}}
	var all [16]*file
	var wait sync.WaitGroup
	for i := range all {
		wait.Go(func() { all[i] = p.file(s, path) })
	}
	wait.Wait()
	for _, f := range all {
		if f == nil || f != all[0] {
			t.Fatal("the file was read several times")
		}
	}
}
