package lsp

import (
	"context"
	"strings"

	"go.lsp.dev/protocol"

	"github.com/recipe-rl/recipe/sdk/kind"
)

// documentSymbol lists the blocks and local values of a file, and the blocks in them.
func (s *server) documentSymbol(ctx context.Context,
	p *protocol.DocumentSymbolParams) (protocol.DocumentSymbolResult, error) {
	v := s.view(ctx)
	f := v.file(v.snapshot, pathOf(p.TextDocument.URI))
	out := protocol.DocumentSymbolSlice{}
	if f == nil {
		return out, nil
	}
	for _, part := range f.parts {
		for _, b := range part.top.blocks {
			out = append(out, f.outline(b, part.base))
		}
	}
	return out, nil
}

func (f *file) outline(b *block, base int) protocol.DocumentSymbol {
	names := []string{b.kind}
	for _, l := range b.labels {
		names = append(names, l.name)
	}
	selection := b.header.shift(base)
	out := protocol.DocumentSymbol{Name: strings.Join(names, " "), Kind: symbolKind(b),
		Range:          f.text.rangeOf(span{b.whole.start, max(b.whole.end, b.header.end)}.shift(base)),
		SelectionRange: f.text.rangeOf(selection)}
	if b.kind == "locals" && b.parent == nil {
		for _, a := range b.attributes {
			out.Children = append(out.Children, protocol.DocumentSymbol{Name: a.name,
				Kind: protocol.SymbolKindConstant, SelectionRange: f.text.rangeOf(a.nameAt.shift(base)),
				Range: f.text.rangeOf(span{a.nameAt.start, max(a.value.end, a.nameAt.end)}.shift(base))})
		}
	}
	for _, inner := range b.blocks {
		out.Children = append(out.Children, f.outline(inner, base))
	}
	return out
}

func symbolKind(b *block) protocol.SymbolKind {
	switch {
	case b.parent != nil:
		return protocol.SymbolKindStruct
	case b.kind == "variable":
		return protocol.SymbolKindVariable
	case b.kind == "output":
		return protocol.SymbolKindProperty
	case b.kind == "module":
		return protocol.SymbolKindModule
	case kind.Kind(b.kind).Valid():
		return protocol.SymbolKindObject
	}
	return protocol.SymbolKindNamespace
}
