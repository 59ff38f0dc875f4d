package schema

import (
	"fmt"
	"math/big"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

const (
	maxElements   = 1 << 20 // of a value, nested ones counted
	maxText       = 4 << 20
	maxIterations = 1 << 17 // of all for expressions in one pass
	maxWork       = 1 << 20 // elements, and units of 16 bytes of text, passed to functions and templates in one pass
	maxExponent   = 1100    // binary, of a number: a float64 has 1024
	maxOperators  = 200_000 // side by side: the parser nests them, and the stack has room for twice as many
	nodesPerWork  = 16      // of the syntax, evaluated, are as much work as one element
)

// budget bounds the work of for expressions, and of the functions called in them: nested ones multiply, and hcl has no
// way to stop an evaluation.
type budget struct {
	iterations, work atomic.Int64

	mu    sync.Mutex
	spent hcl.Diagnostics // that they are used up
}

func (b *budget) refill() {
	b.iterations.Store(maxIterations)
	b.work.Store(maxWork)
	b.mu.Lock()
	b.spent = nil
	b.mu.Unlock()
}

// exhausted notes that the budget is used up.
func (b *budget) exhausted(d *hcl.Diagnostic) hcl.Diagnostics {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spent = append(b.spent, d)
	return hcl.Diagnostics{d}
}

// with adds to the diagnostics of a pass that the budget was used up: hcl drops those of the branch of a conditional
// that is not taken, and try and can those of their arguments.
func (b *budget) with(diags hcl.Diagnostics) hcl.Diagnostics {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append(diags, b.spent...)
}

// spend takes n from the budget. Not ok: too little was left; first is true for the first such call.
func spend(left *atomic.Int64, n int64) (ok, first bool) {
	now := left.Add(-n)
	return now > 0, now <= 0 && now+n > 0
}

// guarded is the collection of a for expression; its iterations are charged before the first of them. It is a node
// of its own, whose only child is the expression itself: a walk over the names in a recipe passes through it.
type guarded struct {
	*hclsyntax.ParenthesesExpr
	budget *budget
	nodes  int64 // that each iteration evaluates
}

// Value is the collection; unknown, which ends the for expression at once, when the budget is used up.
func (g guarded) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	if g.budget.iterations.Load() <= 0 {
		return cty.DynamicVal, nil
	}
	v, diags := g.Expression.Value(ctx)
	plain, _ := v.Unmark()
	if !plain.IsKnown() || plain.IsNull() || !plain.CanIterateElements() {
		return v, diags
	}
	ok, first := spend(&g.budget.iterations, int64(plain.LengthInt())+1)
	if first {
		diags = append(diags, g.budget.exhausted(problem(g.Range(), "Too many iterations", fmt.Sprintf(
			"All for expressions of a recipe together iterate over at most %d elements.", maxIterations)))...)
	}
	if ok {
		ok, first = spend(&g.budget.work, int64(plain.LengthInt())*g.nodes/nodesPerWork)
		if first {
			diags = append(diags, g.budget.exhausted(tooMuchWork(g.Range()))...)
		}
	}
	if !ok {
		return cty.DynamicVal, diags
	}
	return v, diags
}

// metered is an argument of a function call or a part of a template; the work on it is charged to the budget.
type metered struct {
	*hclsyntax.ParenthesesExpr
	budget *budget
	cost   func(elements, text int64) int64
	unify  bool // a tuple or object is converted to a list, set or map
}

// Value is the argument; unknown, so that the call is skipped, when the budget is used up.
func (m metered) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	if m.budget.work.Load() <= 0 {
		return cty.DynamicVal, nil
	}
	v, diags := m.Expression.Value(ctx)
	size := sizer{elements: maxElements, text: maxText}
	size.count(v)
	if size.vast { // hcl would write it out where the function or the template takes a string
		return cty.DynamicVal, append(diags, problem(m.Range(), "Number out of range", outOfRange))
	}
	ok, first := spend(&m.budget.work,
		m.cost(maxElements-int64(size.elements), maxText-int64(size.text))+size.unified(m.unify))
	if first {
		diags = append(diags, m.budget.exhausted(tooMuchWork(m.Range()))...)
	}
	if !ok {
		return cty.DynamicVal, diags
	}
	return v, diags
}

// unified is the work of finding one type for the elements of tuples and objects: cty compares each with each.
func (s *sizer) unified(unify bool) int64 {
	if !unify {
		return 0
	}
	return s.squares / 64
}

// unifies says whether a function converts a tuple to a list or set, or an object to a map.
func unifies(function string) bool {
	switch function {
	case "alltrue", "anytrue", "chunklist", "coalesce", "coalescelist", "compact", "flatten", "formatlist", "join",
		"reverse", "setintersection", "setproduct", "setsubtract", "setunion", "sort", "sum", "tolist", "tomap",
		"toset", "zipmap":
		return true
	}
	return false
}

func tooMuchWork(at hcl.Range) *hcl.Diagnostic {
	return problem(at, "Too much work", fmt.Sprintf(
		"The functions, operators and templates of a recipe together process at most %d elements or %d MiB of text. "+
			"Pass them less data, or call them less often: outside for expressions, for example.",
		maxWork, maxWork>>16))
}

// costOf estimates the work of a function on an argument of a size.
func costOf(function string) func(elements, text int64) int64 {
	switch function {
	case "distinct": // compares each with each
		return func(n, text int64) int64 { return n*n/8 + text/16 + 1 }
	case "sort", "setunion", "setintersection", "setsubtract", "setproduct", "toset", "formatlist":
		return func(n, text int64) int64 { return 16*n + text/16 + 1 }
	}
	return func(n, text int64) int64 { return n + text/16 + 1 }
}

// plain undoes guard for code that looks at the shape of an expression.
func plain(e hclsyntax.Expression) hclsyntax.Expression {
	switch g := e.(type) {
	case guarded:
		return g.Expression
	case *operand:
		return g.Expression
	}
	return e
}

// guard meters every for expression, call and operator below a body or expression, and rejects numbers that are too
// large to be written out. What an earlier load has guarded, of a file that an editor holds, is charged to this budget.
func (b *budget) guard(below hclsyntax.Node) hcl.Diagnostics {
	return hclsyntax.VisitAll(below, func(n hclsyntax.Node) hcl.Diagnostics {
		switch n := n.(type) {
		case *hclsyntax.ForExpr:
			if g, done := n.CollExpr.(guarded); done {
				g.budget = b
				n.CollExpr = g
			} else {
				n.CollExpr = guarded{&hclsyntax.ParenthesesExpr{Expression: n.CollExpr, SrcRange: n.CollExpr.Range()},
					b, nodesOf(n.KeyExpr) + nodesOf(n.ValExpr) + nodesOf(n.CondExpr)}
			}
			b.operands(operand{}, &n.KeyExpr)
		case *hclsyntax.FunctionCallExpr:
			switch n.Name {
			case "list", "map", "set", "object", "tuple", "optional": // of a type, which is read and not called
			default:
				b.meter(n.Args, costOf(n.Name), unifies(n.Name))
			}
		case *hclsyntax.TemplateExpr:
			b.meter(n.Parts, costOf(""), false)
		case *hclsyntax.BinaryOpExpr:
			b.operands(operand{number: n.Op.Type == cty.Number}, &n.LHS, &n.RHS)
		case *hclsyntax.UnaryOpExpr:
			b.operands(operand{number: n.Op.Type == cty.Number}, &n.Val)
		case *hclsyntax.ConditionalExpr:
			b.operands(operand{branch: true}, &n.TrueResult, &n.FalseResult)
		case *hclsyntax.SplatExpr:
			b.operands(operand{}, &n.Source)
		case *hclsyntax.IndexExpr:
			b.operands(operand{}, &n.Key)
		case *hclsyntax.ObjectConsKeyExpr:
			if n.ForceNonLiteral {
				b.operands(operand{}, &n.Wrapped)
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

func (b *budget) meter(exprs []hclsyntax.Expression, cost func(elements, text int64) int64, unify bool) {
	for i, e := range exprs {
		if m, done := e.(metered); done {
			m.budget = b
			exprs[i] = m
		} else if !isLiteral(e) {
			exprs[i] = metered{&hclsyntax.ParenthesesExpr{Expression: e, SrcRange: e.Range()}, b, cost, unify}
		}
	}
}

// implausible rejects values with more elements or text than any recipe needs, and numbers outside the range of a
// float64: hcl computes with any, but writing 1e99999999 out takes minutes. It stops counting at the limit: values may
// share parts, so that a few lines can stand for more than would ever fit into memory.
func implausible(v cty.Value, at hcl.Range) *hcl.Diagnostic {
	s := sizer{elements: maxElements, text: maxText}
	s.count(v)
	switch {
	case s.elements < 0 || s.text < 0:
		return problem(at, "Value too large", fmt.Sprintf("A value has at most %d elements and %d MiB of text.",
			maxElements, maxText>>20))
	case s.infinite:
		return problem(at, "Not a number", "The value is infinite, as after a division by zero.")
	case s.vast:
		return problem(at, "Number out of range", outOfRange)
	}
	return nil
}

// outOfRange is the message for a number that a float64 cannot hold.
const outOfRange = "A number must be between -1.8e308 and 1.8e308; the smallest above 0 is 5e-324."

func vast(x *big.Float) bool {
	exponent := x.MantExp(nil)
	return exponent > maxExponent || exponent < -maxExponent
}

type sizer struct {
	elements, text int
	infinite, vast bool
	squares        int64 // of the lengths of tuples and objects, summed
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
	if t := v.Type(); t.IsTupleType() || t.IsObjectType() {
		s.squares += int64(v.LengthInt()) * int64(v.LengthInt())
	}
	for it := v.ElementIterator(); it.Next() && s.elements >= 0 && s.text >= 0; {
		_, elem := it.Element()
		s.count(elem)
	}
}

// template parses a template file with the same limits as a recipe.
func (b *budget) template(path string, src []byte) (hclsyntax.Expression, error) {
	if d := unreadable(path, src); d != nil {
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

// tooLarge rejects files that could exhaust the stack or the memory of the parser.
func tooLarge(path string, src []byte) *hcl.Diagnostic {
	at := hcl.Range{Filename: path, Start: hcl.InitialPos, End: hcl.InitialPos}
	if len(src) > maxFileBytes {
		return problem(at, "File too large", fmt.Sprintf("A recipe file has at most %d MiB, got %d.", maxFileBytes>>20,
			len(src)>>20))
	}
	depth, line, begin, run, questions := 0, 1, 0, 0, 0
	var operators [maxNesting + 2]int // in brackets of each depth, since the last comma
	for i, c := range src {
		switch c {
		case '\n':
			line, begin = line+1, i+1
			continue
		case ' ', '\t', '\r':
			continue
		case '(', '[', '{':
			depth++
			operators[depth] = 0
		case ')', ']', '}':
			depth = max(0, depth-1)
		case ',':
			operators[depth] = 0
		case '+', '-', '*', '/', '%', '<', '>', '&', '|':
			operators[depth]++
		case '?', ':':
			questions++
		case '=':
			if i > 0 && (src[i-1] == '=' || src[i-1] == '!') {
				operators[depth]++
			}
		}
		if c == '!' || c == '-' {
			run++
		} else {
			run = 0
		}
		if operators[depth] > maxOperators {
			at.Start = hcl.Pos{Line: line, Column: i - begin + 1, Byte: i}
			at.End = hcl.Pos{Line: line, Column: i - begin + 2, Byte: i + 1}
			return problem(at, "Too many operators", fmt.Sprintf(
				"An expression, and the blocks and texts around it, have at most %d operators side by side.",
				maxOperators))
		}
		if depth > maxNesting || run > maxNesting || questions > maxFileBytes>>5 {
			at.Start = hcl.Pos{Line: line, Column: i - begin + 1, Byte: i}
			at.End = hcl.Pos{Line: line, Column: i - begin + 2, Byte: i + 1}
			return problem(at, "Nested too deep", fmt.Sprintf("Brackets and operators nest at most %d deep.",
				maxNesting))
		}
	}
	return nil
}
