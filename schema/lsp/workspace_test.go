package lsp_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.lsp.dev/protocol"

	"github.com/recipe-rl/recipe/schema/lsp"
)

func TestWorkspaceSymbols(t *testing.T) {
	t.Parallel()
	other := "trainer \"grpo\" \"judge\" {\n}\nlocals {\n  judged = 1\n}\n"
	s := start(t, write(t, map[string]string{"other/b.hcl": other}), lsp.Options{})
	s.open("a.hcl", loop)
	for _, c := range []struct {
		query string
		want  []string
	}{
		{"POLICY", []string{"inference vllm policy", "trainer grpo policy", "sync weights policy"}},
		{"judge", []string{"trainer grpo judge", "judged"}},
		{"nothing of it", nil},
	} {
		got, err := s.server.Symbols(s.ctx, &protocol.WorkspaceSymbolParams{Query: c.query})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, symbol := range got.(protocol.SymbolInformationSlice) {
			names = append(names, symbol.Name)
		}
		if !slices.Equal(names, c.want) {
			t.Errorf("%q finds %q, want %q", c.query, names, c.want)
		}
	}
}

// One large file under many names does not fill the memory: those beyond a limit are as if they were empty.
func TestAWorkspaceHasALimit(t *testing.T) {
	t.Parallel()
	const size, names = 400 << 10, 60
	large := "output \"marker\" {\n}\n# " + strings.Repeat("x", size)
	dir := write(t, map[string]string{"large.hcl": large, "huge.hcl": large + large})
	for i := range names {
		if err := os.Symlink("large.hcl", filepath.Join(dir, fmt.Sprintf("l%d.hcl", i))); err != nil {
			t.Fatal(err)
		}
	}
	s := start(t, dir, lsp.Options{})
	got, err := s.server.Symbols(s.ctx, &protocol.WorkspaceSymbolParams{Query: "marker"})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(got.(protocol.SymbolInformationSlice)); n == 0 || n > 8<<20/size {
		t.Errorf("%d files of %d bytes are kept", n, size)
	}
}

func TestFolding(t *testing.T) {
	t.Parallel()
	s := start(t, write(t, nil), lsp.Options{})
	s.open("a.hcl",
		"locals {\n  a = [\n    1,\n  ]\n  b = 2\n}\n\ntrainer \"grpo\" \"p\" {\n  lora {\n    rank = 1\n  }\n}\n")
	got, err := s.server.FoldingRanges(s.ctx, &protocol.FoldingRangeParams{TextDocument: s.id("a.hcl")})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, r := range got {
		lines = append(lines, fmt.Sprintf("%d-%d", r.StartLine, r.EndLine))
	}
	slices.Sort(lines)
	if want := []string{"0-5", "1-3", "7-11", "8-10"}; !slices.Equal(lines, want) {
		t.Errorf("it folds the lines %q, want %q", lines, want)
	}
}

func TestSignatureHelp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, value, want string }{
		{"first", `replace(|`, "replace(string, substring, replacement) 0"},
		{"second", `replace("a", |`, "replace(string, substring, replacement) 1"},
		{"inner call", `replace(upper(|`, "upper(str) 0"},
		{"behind an inner call", `replace(upper("a"), |`, "replace(string, substring, replacement) 1"},
		{"in a list", `length([1, 2, |`, "length(value) 0"},
		{"in a template", `replace("${upper(|`, "upper(str) 0"},
		{"no limit", `max(1, 2, 3, |`, "max(numbers…) 0"},
		{"no call", `1 + |`, ""},
		{"not a function", `nobody(|`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, write(t, nil), lsp.Options{})
			at := s.at("a.hcl", loop+"\noutput \"x\" {\n  value = "+c.value+"\n}\n")
			help, err := s.server.SignatureHelp(s.ctx, &protocol.SignatureHelpParams{TextDocumentPositionParams: at})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if help != nil && len(help.Signatures) > 0 {
				active, _ := help.ActiveParameter.Get()
				got = fmt.Sprintf("%s %d", help.Signatures[0].Label, active)
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// A rename reads each file once, however often the file names the symbol.
func TestARenameOfManyUses(t *testing.T) {
	t.Parallel()
	const uses = 3000
	var b strings.Builder
	b.WriteString("variable \"ste|ps\" {\n  default = 1\n}\nlocals {\n")
	for i := range uses {
		fmt.Fprintf(&b, "  l%d = var.steps\n", i)
	}
	s := start(t, write(t, nil), lsp.Options{})
	at := s.at("a.hcl", b.String()+"}\n")
	edit, err := s.server.Rename(s.ctx, &protocol.RenameParams{TextDocumentPositionParams: at, NewName: "many"})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, list := range edit.Changes {
		n += len(list)
	}
	if n != uses+1 {
		t.Errorf("%d edits, want %d", n, uses+1)
	}
}
