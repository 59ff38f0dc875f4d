package lsp

import (
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// file is what a recipe file declares and uses, read in parts so that a keystroke costs one of them.
type file struct {
	text  *text
	parts []part
}

// part is a piece of a file, usually one top-level block, with its offset in the file. Places in it are relative to it.
type part struct {
	*piece
	base int
}

// piece is the content of a part. It does not change, and files share those with the same text.
type piece struct {
	src        string
	top        body
	attributes []*attribute // at every depth
	open       bool         // a block, bracket or text goes on behind its end
	inText     bool         // what goes on is a template or heredoc, which may contain anything
}

// pieces are those of the last version of a file, by their text.
type pieces map[string]*piece

// maxFile is the size of the largest file that is taken apart: tokens take a thousand times the memory of their text. A
// recipe of 1,000 blocks has a quarter of it.
const maxFile = 512 << 10

// maxJoined bounds how many lines with a brace alone a part may contain: reading it again after each would be
// quadratic.
const maxJoined = 20

// readFile divides a text behind lines that are a closing brace alone, where one top-level block usually ends, and
// reads those parts that known lacks. The pieces that it returns are known to the next version.
func readFile(t *text, known pieces) (*file, pieces) {
	f, now := &file{text: t}, pieces{}
	if len(t.src) > maxFile {
		return f, now
	}
	get := func(src string) *piece {
		p := now[src]
		if p == nil {
			if p = known[src]; p == nil {
				p = readPiece(src)
			}
			now[src] = p
		}
		return p
	}
	for at := 0; at < len(t.src); {
		end := nextCut(t.src, at)
		p := get(t.src[at:end])
		for joined := 0; p.open && end < len(t.src) && (p.inText || !headsTop(behindComments(t.src[end:]))); joined++ {
			if end = nextCut(t.src, end); joined >= maxJoined {
				end = len(t.src)
			}
			p = get(t.src[at:end])
		}
		f.parts = append(f.parts, part{p, at})
		at = end
	}
	return f, now
}

// behindComments is what follows empty lines and comments at the start of a text.
func behindComments(src string) string {
	for {
		line, rest, _ := strings.Cut(src, "\n")
		line = strings.TrimSpace(line)
		if rest == "" || line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "//") {
			return src
		}
		src = rest
	}
}

// nextCut is the offset behind the next line that is a closing brace.
func nextCut(src string, from int) int {
	for at := from; ; {
		i := strings.Index(src[at:], "}\n")
		if i < 0 {
			return len(src)
		}
		i += at
		if at = i + 2; startsLine(src, i) {
			return at
		}
	}
}

func readPiece(src string) *piece {
	tokens := tokensOf(src)
	r := &reader{src: src}
	for _, t := range tokens {
		r.token(t)
	}
	p := &piece{src: src, open: len(r.blocks) > 0 || len(r.nesting) > 0}
	for _, closer := range r.nesting {
		p.inText = p.inText || closer == hclsyntax.TokenCHeredoc
	}
	r.end()
	p.top = r.top
	p.attributes = collect(nil, &p.top)
	return p
}

func collect(into []*attribute, b *body) []*attribute {
	into = append(into, b.attributes...)
	for _, inner := range b.blocks {
		into = collect(into, &inner.body)
	}
	return into
}

// at returns the part that an offset stands in; between two parts, the one before.
func (f *file) at(offset int) (p part, ok bool) {
	for _, p := range f.parts {
		if offset <= p.base+len(p.src) {
			return p, true
		}
	}
	return part{}, false
}
