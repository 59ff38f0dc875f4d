package lsp_test

import (
	"strings"
	"testing"

	"go.lsp.dev/protocol"

	"github.com/recipe-rl/recipe/schema/lsp"
)

// A file that is larger than any recipe, or that the parser refuses, is not taken apart: tokens of a few megabytes take
// gigabytes. The server goes on, and what is wrong is still reported.
func TestHugeFilesAreNotTakenApart(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	for name, c := range map[string]struct {
		src   string
		known bool
	}{
		"small":  {src: "output \"o\" {\n  value = nope\n}\n", known: true},
		"large":  {src: strings.Repeat("output \"o\" {\n  value = nope\n}\n", 40_000)},
		"nested": {src: strings.Repeat("output \"o\" {\n", 20_000)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, t.TempDir(), lsp.Options{})
			s.open("a.hcl", c.src)
			if len(s.diagnostics("a.hcl")) == 0 {
				t.Error("nothing is reported")
			}
			got, err := s.server.DocumentSymbol(s.ctx, &protocol.DocumentSymbolParams{TextDocument: s.id("a.hcl")})
			if err != nil {
				t.Fatal(err)
			}
			list, _ := got.(protocol.DocumentSymbolSlice)
			if known := len(list) > 0; known != c.known {
				t.Errorf("%d symbols", len(list))
			}
		})
	}
}
