package lsp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
	ctyfunction "github.com/zclconf/go-cty/cty/function"
	"go.lsp.dev/protocol"

	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/schema/function"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

func (s *server) hover(ctx context.Context, p *protocol.HoverParams) (*protocol.Hover, error) {
	at, ok := s.placeOf(ctx, p.TextDocumentPositionParams)
	if !ok {
		return nil, nil
	}
	text, where := at.describe()
	if text == "" {
		return nil, nil
	}
	r := at.file.text.rangeOf(where)
	return &protocol.Hover{Contents: markdown(text), Range: &r}, nil
}

func markdown(text string) *protocol.MarkupContent {
	return &protocol.MarkupContent{Kind: protocol.MarkupKindMarkdown, Value: text}
}

// describe is the documentation of what stands at a place, in Markdown, and where exactly that is.
func (at place) describe() (string, span) {
	p, ok := at.file.at(at.offset)
	if !ok {
		return "", span{}
	}
	offset := at.offset - p.base
	for _, a := range p.attributes {
		if a.nameAt.holds(offset) {
			return at.describeAttribute(a), a.nameAt.shift(p.base)
		}
		for _, c := range a.calls {
			if c.at.holds(offset) {
				return describeFunction(c.name), c.at.shift(p.base)
			}
		}
	}
	if r, base := at.reference(); r != nil {
		return at.describeReference(r, offset), r.at.shift(base)
	}
	if b := headerAt(p.top.blocks, offset); b != nil {
		return at.describeBlock(b), b.header.shift(p.base)
	}
	return "", span{}
}

// headerAt is the block whose header an offset is in.
func headerAt(blocks []*block, offset int) *block {
	for _, b := range blocks {
		if b.header.holds(offset) {
			return b
		}
		if b.whole.holds(offset) {
			return headerAt(b.blocks, offset)
		}
	}
	return nil
}

func (at place) describeAttribute(a *attribute) string {
	if a.in != nil && a.in.kind == "locals" && a.in.parent == nil {
		return at.describeSymbol(symbol{at.path, local, a.name})
	}
	s := at.schemaOf(at.path, at.file, a.in)
	if s == nil || s.Attribute(a.name) == nil {
		return ""
	}
	return s.Attribute(a.name).Describe()
}

func (at place) describeBlock(b *block) string {
	s := at.schemaOf(at.path, at.file, b)
	if s == nil {
		return ""
	}
	name := b.kind
	for _, l := range b.labels {
		name += fmt.Sprintf(" %q", l.name)
	}
	return "`" + name + "`\n\n" + s.Doc
}

func (at place) describeReference(r *reference, offset int) string {
	c, name, i := r.name()
	if i == 0 {
		return ""
	}
	member, m := r.member()
	if m > 0 && offset >= r.steps[m].at.start {
		switch c {
		case instance:
			return at.describeMember(name, member)
		case module:
			if target := at.moduleTarget(at.file, at.path, name); target != "" {
				return at.describeSymbol(symbol{target, output, member})
			}
		default:
		}
	}
	return at.describeSymbol(symbol{at.path, c, name})
}

// describeMember is the documentation of an output or attribute of a block.
func (at place) describeMember(block, name string) string {
	_, b := at.file.blockNamed(symbol{at.path, instance, block})
	if b == nil {
		return ""
	}
	p := at.pluginOf(at.path, b)
	if p == nil {
		return ""
	}
	for _, s := range []*spec.Schema{p.Outputs, p.Config} {
		if s != nil && s.Attribute(name) != nil {
			return s.Attribute(name).Describe()
		}
	}
	return ""
}

// describeSymbol is the documentation of a symbol, with its value where that is known.
func (at place) describeSymbol(s symbol) string {
	f := at.view.file(at.snapshot, s.path)
	p, b := f.blockNamed(s)
	var lines []string
	switch s.class {
	case variable:
		if b == nil {
			return ""
		}
		a := variableOf(s.name, p, b)
		a.Name = describe(s)
		lines = append(lines, a.Describe())
	case local:
		lines = append(lines, "`"+describe(s)+"`")
	case instance:
		if b == nil {
			return ""
		}
		lines = append(lines, at.describeBlock(b))
	default:
		if b == nil {
			return ""
		}
		lines = append(lines, "`"+describe(s)+"`")
		if a := b.attribute("description"); a != nil {
			lines = append(lines, strings.Trim(a.value.of(p.src), `"`))
		}
	}
	if s.class == variable || s.class == local {
		if value, ok := at.value(s); ok {
			lines = append(lines, "Value: "+value)
		}
	}
	return strings.Join(lines, "\n\n")
}

// value is the value of a variable or local value, written in HCL. It is known in the recipe itself and not in a
// module, which may be called with several.
func (at place) value(s symbol) (string, bool) {
	roots := at.rootsOf(s.path, at.callers(at.snapshot))
	if !slices.Contains(roots, s.path) {
		return "", false
	}
	a := at.analyze(at.snapshot, s.path)
	v, diags := a.recipe.EvaluateExpression(describe(s), nil)
	if diags.HasErrors() {
		return "", false
	}
	return show(v)
}

// maxShown is how many bytes of a value are shown.
const maxShown = 400

func show(v cty.Value) (string, bool) {
	switch {
	case v.ContainsMarked():
		return "sensitive", true
	case !v.IsWhollyKnown():
		return "not known before the run starts", true
	}
	text := string(hclwrite.Format(hclwrite.TokensForValue(v).Bytes()))
	if len(text) > maxShown {
		text = strings.ToValidUTF8(text[:maxShown], "") + " …"
	}
	if strings.Contains(text, "\n") || strings.Contains(text, "`") {
		return "\n```hcl\n" + text + "\n```", true
	}
	return "`" + text + "`", true
}

// functions are those of the language, for their names and parameters; they are not called.
var functions = sync.OnceValue(func() map[string]ctyfunction.Function {
	return function.All(function.Options{Files: &function.Files{}, Sensitive: decode.Sensitive,
		Ephemeral: decode.Ephemeral})
})

func describeFunction(name string) string {
	f, ok := functions()[name]
	if !ok {
		return ""
	}
	text := "```\n" + signature(name, f) + "\n```"
	if d := f.Description(); d != "" {
		text += "\n\n" + d
	}
	return text
}

func signature(name string, f ctyfunction.Function) string {
	return name + "(" + strings.Join(parameters(f), ", ") + ")"
}

func parameters(f ctyfunction.Function) (names []string) {
	for _, p := range f.Params() {
		names = append(names, p.Name)
	}
	if p := f.VarParam(); p != nil {
		names = append(names, p.Name+"…")
	}
	return names
}

// kindDocs say what a kind of block is.
var kindDocs = map[kind.Kind]string{
	kind.Inference:    "a server that samples from the policy",
	kind.Trajectories: "the API between environments and trainer; created by default",
	kind.Environment:  "prompts and scores",
	kind.Trainer:      "the job that learns",
	kind.Sync:         "moves weights from a trainer to inference; starts last",
	kind.Executor:     "where processes run, if not on this machine",
}
