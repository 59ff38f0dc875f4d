package lsp

import (
	"context"
	"slices"

	"go.lsp.dev/protocol"

	"github.com/recipe-rl/recipe/schema/parse"
)

// formatting does what `recipe fmt` does: a file with syntax errors stays as it is.
func (s *server) formatting(ctx context.Context, p *protocol.DocumentFormattingParams) ([]protocol.TextEdit, error) {
	v := s.view(ctx)
	path := pathOf(p.TextDocument.URI)
	d := v.documents[path]
	if d == nil {
		return nil, nil
	}
	src := d.text.src
	if _, diags := parse.File(path, []byte(src)); diags.HasErrors() {
		return nil, nil
	}
	edits := difference(d.text, string(parse.Format([]byte(src))))
	if !s.current(v, path) {
		return nil, errModified
	}
	return edits, nil
}

// difference is the edit that turns a text into another: it replaces the lines between the first and the last that
// differ, so that the cursor elsewhere stays.
func difference(t *text, want string) []protocol.TextEdit {
	if t.src == want {
		return nil
	}
	start := 0
	for i := 0; i < min(len(t.src), len(want)) && t.src[i] == want[i]; i++ {
		if t.src[i] == '\n' {
			start = i + 1
		}
	}
	end, tail := len(t.src), len(want)
	for end > start && tail > start && t.src[end-1] == want[tail-1] {
		end--
		tail--
	}
	next := len(t.src) // whole lines: an edit cannot end inside the end of one
	if i, _ := slices.BinarySearch(t.lines, end); i < len(t.lines) {
		next = t.lines[i]
	}
	tail += next - end
	end = next
	return []protocol.TextEdit{{Range: t.rangeOf(span{start, end}), NewText: want[start:tail]}}
}
