package lsp

import (
	"context"
	"slices"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"go.lsp.dev/protocol"

	"github.com/recipe-rl/recipe/sdk/kind"
)

// tokenTypes are the standard types of the protocol that the server uses; a token has the index of its type.
var tokenTypes = []string{"keyword", "class", "variable", "property", "function", "namespace", "string", "number",
	"comment", "operator"}

func tokenType(name string) uint32 { return uint32(slices.Index(tokenTypes, name)) }

// colored is a token of a file with its type.
type colored struct {
	at       span
	kind     string
	declares bool
}

func (s *server) semanticTokensFull(ctx context.Context, p *protocol.SemanticTokensParams) (*protocol.SemanticTokens,
	error) {
	v := s.view(ctx)
	f := v.file(v.snapshot, pathOf(p.TextDocument.URI))
	out := &protocol.SemanticTokens{Data: []uint32{}}
	if f == nil {
		return out, nil
	}
	last := protocol.Position{}
	for _, p := range f.parts {
		for _, c := range p.color() {
			for _, at := range f.text.perLine(c.at.shift(p.base)) {
				start, end := f.text.position(at.start), f.text.position(at.end)
				column := start.Character
				if start.Line == last.Line {
					column -= last.Character
				}
				modifiers := uint32(0)
				if c.declares {
					modifiers = 1
				}
				out.Data = append(out.Data, start.Line-last.Line, column, end.Character-start.Character,
					tokenType(c.kind), modifiers)
				last = start
			}
		}
	}
	return out, nil
}

// perLine divides a span into its lines, because editors take no token of several.
func (t *text) perLine(s span) []span {
	var out []span
	for s.start < s.end {
		n := int(t.position(s.start).Line)
		end := min(s.end, t.lines[n]+len(t.line(n)))
		if end > s.start {
			out = append(out, span{s.start, end})
		}
		if n+1 == len(t.lines) {
			break
		}
		s.start = t.lines[n+1]
	}
	return out
}

// color returns the tokens of a piece in the order of the text.
func (p *piece) color() []colored {
	named := map[int]colored{} // by start: what the structure says of a word
	p.colorBody(&p.top, named)
	for _, a := range p.attributes {
		named[a.nameAt.start] = colored{a.nameAt, "property", a.in != nil && a.in.kind == "locals" && a.in.parent == nil}
		for _, c := range a.calls {
			named[c.at.start] = colored{c.at, "function", false}
		}
		for _, r := range a.references {
			r.color(named)
		}
	}
	var out []colored
	for _, t := range tokensOf(p.src) {
		if c, ok := named[t.at.start]; ok && t.at.end > t.at.start {
			out = append(out, c)
			continue
		}
		if k := plainKind(t); k != "" {
			out = append(out, colored{t.at, k, false})
		}
	}
	return out
}

func (p *piece) colorBody(b *body, named map[int]colored) {
	for _, inner := range b.blocks {
		named[inner.kindAt.start] = colored{inner.kindAt, "keyword", false}
		for i, l := range inner.labels {
			k := "variable"
			if i == 0 && (kind.Kind(inner.kind).Valid() || inner.kind == "dynamic") {
				k = "class"
			}
			named[l.at.start] = colored{l.at, k, k == "variable"}
		}
		p.colorBody(&inner.body, named)
	}
}

func (r *reference) color(named map[int]colored) {
	for i, s := range r.steps {
		if s.name == "" {
			continue
		}
		k := "property"
		_, _, at := r.name()
		switch {
		case i == 0:
			k = "namespace"
		case i == at:
			k = "variable"
		case i == 1 && at == 2:
			k = "class"
		}
		named[s.at.start] = colored{s.at, k, false}
	}
}

// keywords are the words of expressions that are not names.
var keywords = []string{"true", "false", "null", "for", "in", "if", "else", "endif", "endfor"}

// plainKind is the type of a token by itself; empty for those without a color.
func plainKind(t token) string {
	switch t.kind {
	case hclsyntax.TokenComment:
		return "comment"
	case hclsyntax.TokenQuotedLit, hclsyntax.TokenStringLit, hclsyntax.TokenOQuote, hclsyntax.TokenCQuote,
		hclsyntax.TokenOHeredoc, hclsyntax.TokenCHeredoc:
		return "string"
	case hclsyntax.TokenNumberLit:
		return "number"
	case hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl, hclsyntax.TokenTemplateSeqEnd:
		return "operator"
	case hclsyntax.TokenIdent:
		if slices.Contains(keywords, t.text) {
			return "keyword"
		}
	default:
	}
	return ""
}
