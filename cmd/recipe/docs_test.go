package main

import (
	"flag"
	"io"
	"path/filepath"
	"testing"

	"github.com/recipe-rl/recipe/cmd/recipe/reference"
)

var update = flag.Bool("update", false, "write golden parts anew")

// TestDocsAreUpToDate holds docs/cli and docs/blocks to the commands and the plugins of this tree.
func TestDocsAreUpToDate(t *testing.T) {
	t.Parallel()
	a := newApp(nil, io.Discard, io.Discard, []string{"RECIPE_CONFIG=" + filepath.Join("testdata", "settings.hcl")})
	plugins, err := a.everyPlugin()
	if err != nil {
		t.Fatal(err)
	}
	for dir, pages := range map[string]reference.Pages{
		"cli":    reference.Commands(newRoot(a)),
		"blocks": reference.Blocks(plugins),
	} {
		wrong, err := pages.Differences(filepath.Join(repository, "docs", dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range wrong {
			t.Errorf("docs/%s/%s; run make docs", dir, w)
		}
	}
}
