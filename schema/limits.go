package schema

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/function"
)

const (
	maxDigits = 10_000 // of a number: to read ten times as many takes a hundred times as long

	maxElements    = 1 << 20 // of a value, nested ones counted
	maxText        = 4 << 20
	maxIterations  = 1 << 17 // of all for expressions in one pass
	maxWork        = 1 << 20 // elements, and units of 16 bytes of text, passed to functions and templates in one pass
	maxOperators   = 200_000 // side by side: the parser nests them, and the stack has room for twice as many
	nodesPerWork   = 2       // of the syntax, evaluated, are as much work as one element
	countedPerWork = 4       // elements that are counted, for the check of a value, are as much work as one that is used
	setWork        = 24      // of each element of a set: whoever goes through it sorts it
)

// budget bounds the work of for expressions, and of the functions called in them: nested ones multiply, and hcl has no
// way to stop an evaluation.
type budget struct {
	iterations, work atomic.Int64
	refused          atomic.Bool // it was said that there is too much work

	called atomic.Pointer[hcl.Range] // the call whose argument was evaluated last: its function is called next
	maker  atomic.Pointer[hcl.Range] // the call whose result used the work up; nil: it was no result

	mu    sync.Mutex
	spent hcl.Diagnostics // that they are used up
}

func (b *budget) refill() {
	b.iterations.Store(maxIterations)
	b.work.Store(maxWork)
	b.refused.Store(false)
	b.called.Store(nil)
	b.maker.Store(nil)
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

// charge takes work from the budget. Not ok: too little was left, which only the first such call says. What the result
// of a function cost is taken without a word: the expression that comes next says it, at the place of the call.
func (b *budget) charge(n int64, at hcl.Range) (ok bool, diags hcl.Diagnostics) {
	if b.work.Add(-n) > 0 {
		return true, nil
	}
	if b.refused.CompareAndSwap(false, true) {
		if made := b.maker.Load(); made != nil {
			at = *made
		}
		diags = b.exhausted(tooMuchWork(at))
	}
	return false, diags
}

// result charges what a function has made: its elements, and 64 bytes of text as one. Text that is passed costs more,
// because it is gone through again.
func (b *budget) result(v cty.Value) {
	size := sizer{elements: maxElements, text: maxText}
	size.count(v)
	cost := size.work() + (maxText-int64(size.text))/64
	if left := b.work.Add(-cost); left <= 0 && left+cost > 0 {
		b.maker.Store(b.called.Load())
	}
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
		diags = append(diags, g.budget.exhausted(diagnostic.Problem(g.Range(), "Too many iterations", fmt.Sprintf(
			"All for expressions of a recipe together iterate over at most %d elements.", maxIterations)))...)
	}
	if ok {
		var spent hcl.Diagnostics
		ok, spent = g.budget.charge(int64(plain.LengthInt())*(1+g.nodes/nodesPerWork), g.Range())
		diags = append(diags, spent...)
	}
	if !ok {
		return cty.DynamicVal, diags
	}
	return v, diags
}

// plain undoes guard for code that looks at the shape of an expression.
func plain(e hclsyntax.Expression) hclsyntax.Expression {
	switch g := e.(type) {
	case guarded:
		return g.Expression
	case *operand:
		return g.Expression
	case *indexed:
		return g.Expression
	}
	return e
}

// guard meters every for expression, call and operator below a body or expression, and rejects numbers that are too
// large to be written out. What an earlier load has guarded, of a file that an editor holds, is charged to this
// budget.
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
				at := n.Range()
				b.meter(n.Args, costOf(n.Name), takes(n.Name), n.Name != "env", &at)
			}
		case *hclsyntax.TemplateExpr:
			b.meter(n.Parts, costOf(""), anything, false, nil)
		case *hclsyntax.BinaryOpExpr:
			number := n.Op.Type == cty.Number
			b.operands(operand{number: number, compared: comparedWith(n, n.RHS)}, &n.LHS)
			b.operands(operand{number: number, compared: comparedWith(n, n.LHS), divisor: n.Op == hclsyntax.OpModulo}, &n.RHS)
		case *hclsyntax.UnaryOpExpr:
			b.operands(operand{number: n.Op.Type == cty.Number}, &n.Val)
		case *hclsyntax.ConditionalExpr:
			b.operands(operand{branch: true}, &n.TrueResult, &n.FalseResult)
		case *hclsyntax.SplatExpr:
			b.operands(operand{}, &n.Source)
		case *hclsyntax.IndexExpr:
			b.operands(operand{}, &n.Key)
			if _, done := n.Collection.(*indexed); !done && !isLiteral(plain(n.Key)) {
				n.Collection = &indexed{&hclsyntax.ParenthesesExpr{Expression: n.Collection, SrcRange: n.Collection.Range()}, n}
			}
		case *hclsyntax.ObjectConsKeyExpr:
			if n.ForceNonLiteral {
				b.operands(operand{}, &n.Wrapped)
			}
		case *hclsyntax.LiteralValueExpr:
			if v := n.Val; v.Type() == cty.Number && v.IsKnown() && !v.IsNull() && function.Vast(v.AsBigFloat()) {
				n.Val = cty.UnknownVal(cty.Number)
				return hcl.Diagnostics{diagnostic.Problem(n.SrcRange, "Number out of range", outOfRange)}
			}
		}
		return nil
	})
}

// meter guards the arguments of a call or the parts of a template: also literals of a call, which a for expression
// repeats. Call is where the call is; nil: there is none.
func (b *budget) meter(exprs []hclsyntax.Expression, cost func(elements, text int64) int64, takes taking,
	literals bool, call *hcl.Range) {
	for i, e := range exprs {
		if m, done := e.(metered); done {
			m.budget = b
			exprs[i] = m
		} else if literals || !isLiteral(e) {
			exprs[i] = metered{&hclsyntax.ParenthesesExpr{Expression: e, SrcRange: e.Range()}, b, cost, takes, call}
		}
	}
}

// implausible rejects values with more elements or text than any recipe needs, and numbers outside the range of a
// float64: hcl computes with any, but writing 1e99999999 out takes minutes. It stops counting at the limit: values may
// share parts, so that a few lines can stand for more than would ever fit into memory. counted is how many elements it
// has gone through.
func implausible(v cty.Value, at hcl.Range) (d *hcl.Diagnostic, counted int64) {
	s := sizer{elements: maxElements, text: maxText}
	s.count(v)
	counted = maxElements - int64(s.elements)
	switch {
	case s.elements < 0 || s.text < 0:
		d = diagnostic.Problem(at, "Value too large", fmt.Sprintf("A value has at most %d elements and %d MiB of text.",
			maxElements, maxText>>20))
	case s.infinite:
		d = diagnostic.Problem(at, "Not a number", "The value is infinite, as after a division by zero.")
	case s.vast:
		d = diagnostic.Problem(at, "Number out of range", outOfRange)
	}
	return d, counted
}

// outOfRange is the message for a number that a float64 cannot hold.
const outOfRange = "A number must be between -1.8e308 and 1.8e308; the smallest above 0 is 5e-324."

type sizer struct {
	elements, text int
	infinite, vast bool
	sets           int64 // elements of sets
	unifying       int64 // work of finding one type for the elements of each tuple and object
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
		s.infinite, s.vast = s.infinite || x.IsInf(), s.vast || function.Vast(x)
		return
	}
	if !v.CanIterateElements() {
		return
	}
	if v.Type().IsSetType() {
		s.sets += int64(v.LengthInt())
	}
	before := s.elements
	for it := v.ElementIterator(); it.Next() && s.elements >= 0 && s.text >= 0; {
		_, elem := it.Element()
		s.count(elem)
	}
	if t := v.Type(); t.IsTupleType() || t.IsObjectType() {
		s.unifying += unifying(int64(v.LengthInt()), int64(before-s.elements))
	}
}

// unifying is the work of finding one type for n elements with so many values in them: cty compares each with each.
func unifying(n, below int64) int64 {
	if n == below {
		return n * n / 48
	}
	return n * below / 4
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
		return diagnostic.Problem(at, "File too large", fmt.Sprintf("A recipe file has at most %d MiB, got %d.",
			maxFileBytes>>20,
			len(src)>>20))
	}
	depth, line, begin, run, questions, digits := 0, 1, 0, 0, 0, 0
	parts, word := 0, false
	heredoc := bytes.Contains(src, []byte("<<"))
	var operators [maxNesting + 2]int // in brackets of each depth, since the last comma
	for i, c := range src {
		if digits++; c < '0' || c > '9' {
			digits = 0
		}
		if digits > maxDigits {
			at.Start = hcl.Pos{Line: line, Column: i - begin + 1, Byte: i}
			at.End = hcl.Pos{Line: line, Column: i - begin + 2, Byte: i + 1}
			return diagnostic.Problem(at, "Number too long", fmt.Sprintf("A number has at most %d digits.", maxDigits))
		}
		if before := word; c != ' ' {
			if word = c == '_' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= 0x80; !word || !before {
				parts++
			}
		} else {
			word = false
		}
		if parts > maxParts {
			at.Start = hcl.Pos{Line: line, Column: i - begin + 1, Byte: i}
			at.End = hcl.Pos{Line: line, Column: i - begin + 2, Byte: i + 1}
			return diagnostic.Problem(at, "File too long", fmt.Sprintf("A recipe file has at most %d words and signs; read "+
				"longer texts "+
				"with file(\"…\").", maxParts))
		}
		switch c {
		case '\n':
			if line, begin = line+1, i+1; line > maxLines && heredoc { // hcl makes a part of each line of a heredoc
				at.Start = hcl.Pos{Line: line, Column: 1, Byte: i + 1}
				at.End = at.Start
				return diagnostic.Problem(at, "File too long", fmt.Sprintf("A recipe file with a heredoc (<<) has at most %d "+
					"lines; read "+
					"longer texts with file(\"…\").", maxLines))
			}
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
			return diagnostic.Problem(at, "Too many operators", fmt.Sprintf(
				"An expression, and the blocks and texts around it, have at most %d operators side by side.",
				maxOperators))
		}
		if depth > maxNesting || run > maxNesting || questions > maxFileBytes>>5 {
			at.Start = hcl.Pos{Line: line, Column: i - begin + 1, Byte: i}
			at.End = hcl.Pos{Line: line, Column: i - begin + 2, Byte: i + 1}
			return diagnostic.Problem(at, "Nested too deep", fmt.Sprintf("Brackets and operators nest at most %d deep.",
				maxNesting))
		}
	}
	return nil
}
