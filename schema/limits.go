package schema

import (
	"fmt"
	"math/big"
	"sync/atomic"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

const (
	maxElements   = 1 << 20 // of a value, nested ones counted
	maxText       = 4 << 20
	maxIterations = 1 << 17 // of all for expressions in one pass
	maxExponent   = 1100    // of two, in a number: a float64 has 1024
)

// budget bounds the work of for expressions: nested ones multiply, and hcl has no way to stop an evaluation.
type budget struct{ left atomic.Int64 }

func (b *budget) refill() { b.left.Store(maxIterations) }

// guarded is the body of a for expression that counts its iterations. Embedding the interface makes it a node of its own.
type guarded struct {
	hclsyntax.Expression
	budget *budget
}

func (g guarded) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	switch left := g.budget.left.Add(-1); {
	case left > 0:
		return g.Expression.Value(ctx)
	case left == 0: // once
		return cty.DynamicVal, hcl.Diagnostics{problem(g.Range(), "Too many iterations", fmt.Sprintf("All for expressions together go through at most %d elements.", maxIterations))}
	}
	return cty.DynamicVal, nil
}

// plain undoes guard for code that looks at the shape of an expression.
func plain(e hclsyntax.Expression) hclsyntax.Expression {
	if g, ok := e.(guarded); ok {
		return g.Expression
	}
	return e
}

// guard makes every for expression below a body or expression count, and refuses numbers that are too large to be written out.
func (b *budget) guard(below hclsyntax.Node) hcl.Diagnostics {
	return hclsyntax.VisitAll(below, func(n hclsyntax.Node) hcl.Diagnostics {
		switch n := n.(type) {
		case *hclsyntax.ForExpr:
			if _, done := n.ValExpr.(guarded); !done {
				n.ValExpr = guarded{n.ValExpr, b}
			}
		case *hclsyntax.LiteralValueExpr:
			if v := n.Val; v.Type() == cty.Number && v.IsKnown() && !v.IsNull() && vast(v.AsBigFloat()) {
				n.Val = cty.UnknownVal(cty.Number)
				return hcl.Diagnostics{problem(n.SrcRange, "Number out of range", outOfRange)}
			}
		}
		return nil
	})
}

// implausible refuses values with more elements or text than any recipe needs, and numbers outside of what a float64 holds:
// hcl computes with any, but writing 1e99999999 out takes minutes. It stops counting
// at the limit: values may share parts, so that a few lines can stand for more than would ever fit into memory.
func implausible(v cty.Value, at hcl.Range) *hcl.Diagnostic {
	s := sizer{elements: maxElements, text: maxText}
	s.count(v)
	switch {
	case s.elements < 0 || s.text < 0:
		return problem(at, "Value too large", fmt.Sprintf("A value has at most %d elements and %d MiB of text.", maxElements, maxText>>20))
	case s.infinite:
		return problem(at, "Not a number", "The value is infinite, as after a division by zero.")
	case s.vast:
		return problem(at, "Number out of range", outOfRange)
	}
	return nil
}

// outOfRange is what is said of a number that no program could be given.
const outOfRange = "A number lies between -1.8e308 and 1.8e308, and the smallest above 0 is 5e-324."

func vast(x *big.Float) bool {
	exponent := x.MantExp(nil)
	return exponent > maxExponent || exponent < -maxExponent
}

type sizer struct {
	elements, text int
	infinite, vast bool
}

func (s *sizer) count(v cty.Value) {
	if s.elements--; s.elements < 0 || s.text < 0 {
		return
	}
	v, _ = v.Unmark()
	if !v.IsKnown() || v.IsNull() {
		return
	}
	switch v.Type() {
	case cty.String:
		s.text -= len(v.AsString())
		return
	case cty.Number:
		x := v.AsBigFloat()
		s.infinite, s.vast = s.infinite || x.IsInf(), s.vast || vast(x)
		return
	}
	if !v.CanIterateElements() {
		return
	}
	for it := v.ElementIterator(); it.Next() && s.elements >= 0 && s.text >= 0; {
		_, elem := it.Element()
		s.count(elem)
	}
}

// template parses a template file with the same care as a recipe.
func (b *budget) template(path string, src []byte) (hclsyntax.Expression, error) {
	if d := tooLarge(path, src); d != nil {
		return nil, hcl.Diagnostics{d}
	}
	expr, diags := hclsyntax.ParseTemplate(src, path, hcl.InitialPos)
	if diags.HasErrors() {
		return nil, diags
	}
	if diags := b.guard(expr); diags.HasErrors() {
		return nil, diags
	}
	return expr, nil
}

// tooLarge refuses files that could exhaust the stack or the memory of the parser.
func tooLarge(path string, src []byte) *hcl.Diagnostic {
	at := hcl.Range{Filename: path, Start: hcl.InitialPos, End: hcl.InitialPos}
	if len(src) > maxFileBytes {
		return problem(at, "File too large", fmt.Sprintf("A recipe file has at most %d MiB, got %d.", maxFileBytes>>20, len(src)>>20))
	}
	depth, line, begin, run, questions := 0, 1, 0, 0, 0
	for i, c := range src {
		switch c {
		case '\n':
			line, begin = line+1, i+1
			continue
		case ' ', '\t', '\r':
			continue
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth = max(0, depth-1)
		case '?', ':':
			questions++
		}
		if c == '!' || c == '-' {
			run++
		} else {
			run = 0
		}
		if depth > maxNesting || run > maxNesting || questions > maxFileBytes>>5 {
			at.Start = hcl.Pos{Line: line, Column: i - begin + 1, Byte: i}
			at.End = hcl.Pos{Line: line, Column: i - begin + 2, Byte: i + 1}
			return problem(at, "Nested too deep", fmt.Sprintf("Brackets and operators nest at most %d deep.", maxNesting))
		}
	}
	return nil
}
