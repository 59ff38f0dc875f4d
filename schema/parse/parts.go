package parse

import (
	"bytes"
	"runtime"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/recipe-rl/recipe/schema/diagnostic"
)

// Parts parses files that change a little at a time, such as those of an editor: what stands before a change is not
// parsed again, and what follows is parsed by several processors. Loads with one Parts must not run at the same time.
type Parts struct {
	files map[string][]parsedPart
}

// parsedPart is a part of a file that holds whole blocks and has no syntax error.
type parsedPart struct {
	src   string
	start hcl.Pos
	body  *hclsyntax.Body
}

// partSize is how many bytes a part has at least: with smaller ones starting the parser costs more than it saves.
const partSize = 8 << 10

// parse is hclsyntax.ParseConfig. A nil Parts parses the whole file, and so does any with a syntax error, because how
// the parser goes on behind one depends on what follows.
func (p *Parts) parse(path string, src []byte) (*hcl.File, hcl.Diagnostics) {
	if p != nil && !bytes.Contains(src, []byte("\ufeff")) {
		if body := p.body(path, src); body != nil {
			return &hcl.File{Body: body, Bytes: src}, nil
		}
	}
	file, diags := hclsyntax.ParseConfig(src, path, hcl.InitialPos)
	return file, diagnostic.Few(diags, MaxMistakes)
}

// body joins the parts of a file; nil when it must be parsed whole.
func (p *Parts) body(path string, src []byte) *hclsyntax.Body {
	before := p.files[path]
	now := inParts(string(src))
	var group sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range now {
		part := &now[i]
		if i < len(before) && before[i].src == part.src && before[i].start == part.start {
			part.body = before[i].body
			continue
		}
		free <- struct{}{}
		group.Go(func() {
			part.parse(path)
			<-free
		})
	}
	group.Wait()
	if p.files == nil {
		p.files = map[string][]parsedPart{}
	}
	p.files[path] = now
	return join(now)
}

// parse parses a part. One with a mistake, or with something that only a whole file shows to be one, has no body.
func (p *parsedPart) parse(path string) {
	file, diags := hclsyntax.ParseConfig([]byte(p.src), path, p.start)
	body, ok := file.Body.(*hclsyntax.Body)
	if ok && len(diags) == 0 && len(body.Attributes) == 0 {
		p.body = body
	}
}

// inParts divides a text behind lines that are a closing brace alone. A cut inside a block, a text or a comment makes
// the part before it one with a syntax error.
func inParts(src string) []parsedPart {
	var out []parsedPart
	start := hcl.InitialPos
	for at := 0; at < len(src); {
		end := len(src)
		if at+partSize < len(src) {
			const brace = "\n}\n"
			if i := strings.Index(src[at+partSize:], brace); i >= 0 {
				end = at + partSize + i + len(brace)
			}
		}
		part := parsedPart{src: src[at:end], start: start}
		out = append(out, part)
		start.Line += strings.Count(part.src, "\n")
		start.Byte, at = end, end
	}
	return out
}

func join(parts []parsedPart) *hclsyntax.Body {
	var whole *hclsyntax.Body
	for _, p := range parts {
		switch {
		case p.body == nil:
			return nil
		case whole == nil:
			first := *p.body
			whole = &first
			continue
		}
		whole.Blocks = append(whole.Blocks[:len(whole.Blocks):len(whole.Blocks)], p.body.Blocks...)
		whole.SrcRange = hcl.RangeBetween(whole.SrcRange, p.body.SrcRange)
		whole.EndRange = p.body.EndRange
	}
	return whole
}
