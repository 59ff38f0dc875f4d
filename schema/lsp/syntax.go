package lsp

import (
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// body is what stands between the braces of a block, or the whole file. It is read from tokens and not from hcl's
// syntax tree, which lacks what could not be parsed: while someone types, that is the place where the cursor is.
type body struct {
	attributes []*attribute
	blocks     []*block
}

// block is a block as far as it is written.
type block struct {
	body
	kind   string
	kindAt span
	labels []label
	header span // from the kind to the last label
	whole  span
	parent *block // nil at the top
}

type label struct {
	name string
	at   span // without quotes
}

type attribute struct {
	name       string
	nameAt     span
	value      span // from the first token behind the equals sign to the last
	references []*reference
	calls      []call
	in         *block
}

// reference is a use of a name: inference.vllm.policy.base_url.
type reference struct {
	steps []step
	at    span
	in    *attribute
}

type step struct {
	name string // empty for an index or a splat
	at   span
}

// call is the name of a function that is called.
type call struct {
	name string
	at   span
}

// token is one token of hcl with its place in the text.
type token struct {
	kind hclsyntax.TokenType
	text string
	at   span
}

// tokensOf has nothing of a text that schema refuses to read: it would be taken apart for minutes.
func tokensOf(src string) []token {
	if !parse.Readable([]byte(src)) {
		return nil
	}
	lexed, _ := hclsyntax.LexConfig([]byte(src), "", hcl.InitialPos) // its diagnostics are those of the language
	out := make([]token, 0, len(lexed))
	for _, t := range lexed {
		at := span{t.Range.Start.Byte, t.Range.End.Byte}
		out = append(out, token{t.Type, at.of(src), at})
	}
	return out
}

// reader follows the tokens of a text. It never fails: what does not fit is skipped up to the end of the line.
type reader struct {
	top     body
	src     string
	blocks  []*block              // that are open, outermost first
	opening *block                // its header has begun
	current *attribute            // its value has begun
	nesting []hclsyntax.TokenType // of brackets and templates open in the value of current
	value   []token               // of current
}

// end closes what is still open at the end of the text.
func (r *reader) end() {
	r.endAttribute()
	for _, b := range r.blocks {
		b.whole.end = len(r.src)
	}
}

func (r *reader) body() *body {
	if len(r.blocks) == 0 {
		return &r.top
	}
	return &r.blocks[len(r.blocks)-1].body
}

func (r *reader) block() *block {
	if len(r.blocks) == 0 {
		return nil
	}
	return r.blocks[len(r.blocks)-1]
}

func (r *reader) token(t token) {
	if t.kind == hclsyntax.TokenIdent && r.startsBlock(t) {
		// A block at the start of a line is at the top, whatever was left open before it.
		r.endAttribute()
		for _, b := range r.blocks {
			b.whole.end = t.at.start
		}
		r.blocks, r.opening = nil, nil
	}
	switch {
	case t.kind == hclsyntax.TokenComment && strings.HasSuffix(t.text, "\n"):
		r.newline()
	case t.kind == hclsyntax.TokenComment, t.kind == hclsyntax.TokenEOF:
	case r.current != nil:
		r.inValue(t)
	case r.opening != nil:
		r.inHeader(t)
	case t.kind == hclsyntax.TokenIdent:
		r.opening = &block{kind: t.text, kindAt: t.at, header: t.at, whole: t.at, parent: r.block()}
	case t.kind == hclsyntax.TokenCBrace && len(r.blocks) > 0:
		r.block().whole.end = t.at.end
		r.blocks = r.blocks[:len(r.blocks)-1]
	}
}

// startsBlock says whether the header of a top-level block begins at a token: a keyword of a top-level block at the
// start of a line, followed by a label or a brace.
func (r *reader) startsBlock(t token) bool {
	if len(r.blocks) == 0 && r.current == nil || !startsLine(r.src, t.at.start) {
		return false
	}
	return headsTop(r.src[t.at.start:])
}

func startsLine(src string, at int) bool { return at == 0 || src[at-1] == '\n' }

// headsTop reports whether a text starts with the header of a top-level block.
func headsTop(src string) bool {
	word := src[:len(src)-len(strings.TrimLeftFunc(src, isNameRune))]
	rest := strings.TrimLeft(src[len(word):], " \t")
	return isTopBlock(word) && (strings.HasPrefix(rest, `"`) || strings.HasPrefix(rest, "{"))
}

func isNameRune(c rune) bool {
	return c == '_' || c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func isTopBlock(word string) bool {
	return kind.Kind(word).Valid() || slices.Contains(declarations, word)
}

// declarations are the top-level blocks that are not of a kind.
var declarations = []string{"recipe", "variable", "locals", "output", "module", "moved", "alert", "evaluation",
	"tracking"}

func (r *reader) newline() {
	if r.current != nil {
		if len(r.nesting) == 0 {
			r.endAttribute()
		}
		return
	}
	r.opening = nil
}

// inHeader reads labels, up to a brace or an equals sign.
func (r *reader) inHeader(t token) {
	b := r.opening
	switch t.kind {
	case hclsyntax.TokenIdent, hclsyntax.TokenQuotedLit:
		b.labels = append(b.labels, label{t.text, t.at})
		b.header.end = t.at.end
	case hclsyntax.TokenCQuote:
		if b.header.end < t.at.start {
			b.labels = append(b.labels, label{at: span{t.at.start, t.at.start}}) // ""
		}
		b.header.end = t.at.end
	case hclsyntax.TokenOBrace:
		b.whole.end = t.at.end
		in := r.body()
		in.blocks = append(in.blocks, b)
		r.blocks, r.opening = append(r.blocks, b), nil
	case hclsyntax.TokenEqual:
		if len(b.labels) == 0 {
			r.current = &attribute{name: b.kind, nameAt: b.kindAt, value: span{t.at.end, t.at.end}, in: r.block()}
			in := r.body()
			in.attributes = append(in.attributes, r.current)
		}
		r.opening = nil
	case hclsyntax.TokenNewline:
		r.opening = nil
	case hclsyntax.TokenCBrace:
		r.opening = nil
		r.token(t)
	default:
	}
}

// inValue reads the value of an attribute, which ends with a line outside brackets.
func (r *reader) inValue(t token) {
	if closer, ok := closers[t.kind]; ok {
		r.nesting = append(r.nesting, closer)
	} else if n := len(r.nesting); n > 0 && t.kind == r.nesting[n-1] {
		r.nesting = r.nesting[:n-1]
	} else if n == 0 {
		switch t.kind {
		case hclsyntax.TokenNewline:
			r.endAttribute()
			return
		case hclsyntax.TokenCBrace: // recipe { name = "x" } on one line
			r.endAttribute()
			r.token(t)
			return
		default:
		}
	}
	r.value = append(r.value, t)
}

// closers are the tokens that end what a token begins.
var closers = map[hclsyntax.TokenType]hclsyntax.TokenType{
	hclsyntax.TokenOBrace: hclsyntax.TokenCBrace, hclsyntax.TokenOBrack: hclsyntax.TokenCBrack,
	hclsyntax.TokenOParen: hclsyntax.TokenCParen, hclsyntax.TokenOQuote: hclsyntax.TokenCQuote,
	hclsyntax.TokenOHeredoc: hclsyntax.TokenCHeredoc, hclsyntax.TokenTemplateInterp: hclsyntax.TokenTemplateSeqEnd,
	hclsyntax.TokenTemplateControl: hclsyntax.TokenTemplateSeqEnd,
}

func (r *reader) endAttribute() {
	a := r.current
	if a == nil {
		return
	}
	if n := len(r.value); n > 0 {
		a.value = span{r.value[0].at.start, r.value[n-1].at.end}
	}
	e := expression{tokens: r.value, in: a, bound: iterators(a.in)}
	e.read(0, len(r.value))
	r.current, r.nesting, r.value = nil, nil, nil
}

// iterators are the names that dynamic blocks around give to their current elements.
func iterators(b *block) []string {
	var names []string
	for ; b != nil; b = b.parent {
		if b.kind == "dynamic" && len(b.labels) == 1 {
			names = append(names, b.labels[0].name)
		}
	}
	return names
}

// expression finds the names in the tokens of a value.
type expression struct {
	tokens []token
	in     *attribute
	bound  []string // names of for expressions and iterators around
}

func (e *expression) kindAt(i int) hclsyntax.TokenType {
	if i < 0 || i >= len(e.tokens) {
		return hclsyntax.TokenEOF
	}
	return e.tokens[i].kind
}

// read goes through the tokens from i up to end.
func (e *expression) read(i, end int) {
	for i < end {
		switch t := e.tokens[i]; {
		case t.kind == hclsyntax.TokenIdent && e.kindAt(i-1) != hclsyntax.TokenDot:
			i = e.name(i, end)
		case (t.kind == hclsyntax.TokenOBrack || t.kind == hclsyntax.TokenOBrace) && e.isFor(i+1):
			closing := e.closing(i, end)
			inner := expression{tokens: e.tokens, in: e.in, bound: slices.Concat(e.bound, e.forNames(i+2, closing))}
			inner.read(i+1, closing)
			i = closing
		default:
			i++
		}
	}
}

func (e *expression) isFor(i int) bool {
	return e.kindAt(i) == hclsyntax.TokenIdent && e.tokens[i].text == "for"
}

func (e *expression) forNames(i, end int) []string {
	var names []string
	for ; i < end && e.tokens[i].text != "in"; i++ {
		if e.tokens[i].kind == hclsyntax.TokenIdent {
			names = append(names, e.tokens[i].text)
		}
	}
	return names
}

// closing is the index of the token that closes the bracket at i, or end.
func (e *expression) closing(i, end int) int {
	depth := 0
	for ; i < end; i++ {
		if _, opens := closers[e.tokens[i].kind]; opens {
			depth++
		}
		switch e.tokens[i].kind {
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenCQuote,
			hclsyntax.TokenCHeredoc, hclsyntax.TokenTemplateSeqEnd:
			if depth--; depth == 0 {
				return i
			}
		default:
		}
	}
	return end
}

// name reads a call or a reference that starts at i, and returns the index of what follows.
func (e *expression) name(i, end int) int {
	root := e.tokens[i]
	if e.kindAt(i+1) == hclsyntax.TokenOParen {
		e.in.calls = append(e.in.calls, call{root.text, root.at})
		return i + 1
	}
	ref := &reference{steps: []step{{root.text, root.at}}, at: root.at, in: e.in}
	for i++; i < end; {
		switch e.tokens[i].kind {
		case hclsyntax.TokenDot:
			last := step{at: span{e.tokens[i].at.end, e.tokens[i].at.end}}
			next := e.kindAt(i + 1)
			if i+1 < end && (next == hclsyntax.TokenIdent || next == hclsyntax.TokenStar || next == hclsyntax.TokenNumberLit) {
				i++
				last.at = e.tokens[i].at
				if next == hclsyntax.TokenIdent {
					last.name = e.tokens[i].text
				}
			}
			i++
			ref.steps, ref.at.end = append(ref.steps, last), last.at.end
			continue
		case hclsyntax.TokenOBrack:
			closing := e.closing(i, end)
			e.read(i+1, closing)
			last := step{at: span{e.tokens[i].at.start, e.tokens[min(closing, end-1)].at.end}}
			ref.steps, ref.at.end = append(ref.steps, last), last.at.end
			i = min(closing+1, end)
			continue
		default:
		}
		break
	}
	if len(ref.steps) > 1 && !slices.Contains(e.bound, root.text) {
		e.in.references = append(e.in.references, ref)
	}
	return i
}
