package lsp

import (
	"context"
	"strings"

	"go.lsp.dev/protocol"
)

// maxSymbols bounds the answer to a query that many names fit.
const maxSymbols = 1000

// workspaceSymbol finds the blocks and local values of all recipes of the workspace whose name contains the query.
func (s *server) workspaceSymbol(ctx context.Context,
	p *protocol.WorkspaceSymbolParams) (protocol.WorkspaceSymbolResult, error) {
	v := s.view(ctx)
	out := protocol.SymbolInformationSlice{}
	query := strings.ToLower(p.Query)
	for _, path := range v.recipes(v.snapshot) {
		f := v.file(v.snapshot, path)
		if f == nil {
			continue
		}
		add := func(symbol protocol.DocumentSymbol) {
			if len(out) == maxSymbols || !strings.Contains(strings.ToLower(symbol.Name), query) {
				return
			}
			info := protocol.SymbolInformation{Location: protocol.Location{URI: v.uriOf(path), Range: symbol.SelectionRange}}
			info.Name, info.Kind = symbol.Name, symbol.Kind
			out = append(out, info)
		}
		for _, part := range f.parts {
			for _, b := range part.top.blocks {
				symbol := f.outline(b, part.base)
				if b.kind != "locals" {
					add(symbol)
					continue
				}
				for _, local := range symbol.Children {
					add(local)
				}
			}
		}
	}
	return out, nil
}

// foldingRange folds blocks, and values of several lines.
func (s *server) foldingRange(ctx context.Context, p *protocol.FoldingRangeParams) ([]protocol.FoldingRange, error) {
	v := s.view(ctx)
	out := []protocol.FoldingRange{}
	f := v.file(v.snapshot, pathOf(p.TextDocument.URI))
	if f == nil {
		return out, nil
	}
	fold := func(from, to protocol.Position) {
		if to.Line > from.Line {
			out = append(out, protocol.FoldingRange{StartLine: from.Line, EndLine: to.Line})
		}
	}
	for _, part := range f.parts {
		for _, a := range part.attributes {
			r := f.text.rangeOf(span{a.nameAt.start, max(a.value.end, a.nameAt.end)}.shift(part.base))
			fold(r.Start, r.End)
		}
		eachBlock(&part.top, func(b *block) {
			r := f.text.rangeOf(span{b.header.start, max(b.whole.end, b.header.end)}.shift(part.base))
			fold(r.Start, r.End)
		})
	}
	return out, nil
}

func eachBlock(b *body, visit func(*block)) {
	for _, inner := range b.blocks {
		visit(inner)
		eachBlock(&inner.body, visit)
	}
}
