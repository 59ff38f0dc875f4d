package lsp

import (
	"context"
	"strings"

	"github.com/agext/levenshtein"
	"go.lsp.dev/protocol"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
)

var (
	suggestion = lazyregexp.New(`Did you mean "([^"]+)"\?`)
	dottedName = lazyregexp.New(`[\p{L}_][\p{L}\p{N}_-]*(\.[\p{L}_][\p{L}\p{N}_-]*)*`)
	plainName  = lazyregexp.New(`[\p{L}_][\p{L}\p{N}_-]*`)
)

// codeAction offers corrections: where a diagnostic suggests another name, it can be written.
func (s *server) codeAction(ctx context.Context, p *protocol.CodeActionParams) ([]protocol.CommandOrCodeAction, error) {
	v := s.view(ctx)
	path := pathOf(p.TextDocument.URI)
	d := v.documents[path]
	if d == nil {
		return nil, nil
	}
	var out []protocol.CommandOrCodeAction
	for _, item := range v.diagnose()[path] {
		if after(item.Range.Start, p.Range.End) || after(p.Range.Start, item.Range.End) {
			continue
		}
		text, _ := item.Message.(protocol.String)
		match := suggestion.FindStringSubmatch(string(text))
		if match == nil {
			continue
		}
		at := d.text.span(item.Range)
		wrong, ok := misspelled(at.of(d.text.src), match[1])
		if !ok {
			continue
		}
		kind, preferred := protocol.CodeActionKindQuickFix, true
		edit := protocol.TextEdit{Range: d.text.rangeOf(wrong.shift(at.start)), NewText: match[1]}
		out = append(out, &protocol.CodeAction{Title: "Change to " + match[1], Kind: &kind, IsPreferred: &preferred,
			Diagnostics: []protocol.Diagnostic{item},
			Edit:        s.workspaceEdit(v, map[string][]protocol.TextEdit{path: {edit}})})
	}
	if !s.current(v, path) {
		return nil, errModified
	}
	return out, nil
}

func after(a, b protocol.Position) bool {
	return a.Line > b.Line || a.Line == b.Line && a.Character > b.Character
}

// misspelled finds the name in a text that comes nearest to the right one. A name with dots has as many of them.
func misspelled(text, right string) (span, bool) {
	names, dots := plainName, strings.Count(right, ".")
	if dots > 0 {
		names = dottedName
	}
	best, found := span{}, -1
	for _, at := range names.FindAllStringIndex(text, -1) {
		name := text[at[0]:at[1]]
		if dots > 0 {
			steps := strings.Split(name, ".")
			if len(steps) <= dots {
				continue
			}
			name = strings.Join(steps[:dots+1], ".")
		}
		if d := levenshtein.Distance(name, right, nil); d > 0 && (found < 0 || d <= found) {
			best, found = span{at[0], at[0] + len(name)}, d
		}
	}
	return best, found >= 0
}
