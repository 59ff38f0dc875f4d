// Package budget bounds the work of evaluating expressions. hcl has no way to stop an evaluation, so the expressions of
// a file are guarded once, after parsing: each loop, call and operator then charges what it does before it does it.
package budget

import (
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
	maxElements    = 1 << 20 // of a value, nested ones counted
	maxText        = 4 << 20
	maxIterations  = 1 << 17 // of all for expressions in one pass
	maxWork        = 1 << 20 // elements, and units of 16 bytes of text, passed to functions and templates in one pass
	nodesPerWork   = 2       // of the syntax, evaluated, are as much work as one element
	countedPerWork = 4       // elements that are counted, for the check of a value, are as much work as one that is used
	setWork        = 24      // of each element of a set: whoever goes through it sorts it
)

// Budget bounds the work of for expressions, and of the functions called in them: nested ones multiply, and hcl has no
// way to stop an evaluation.
type Budget struct {
	iterations, work atomic.Int64
	refused          atomic.Bool // it was said that there is too much work

	called atomic.Pointer[hcl.Range] // the call whose argument was evaluated last: its function is called next
	maker  atomic.Pointer[hcl.Range] // the call whose result used the work up; nil: it was no result

	mu    sync.Mutex
	spent hcl.Diagnostics // that they are used up
}

// New is a budget of which nothing is used up.
func New() *Budget {
	b := &Budget{}
	b.Refill()
	return b
}

// Refill begins a new pass.
func (b *Budget) Refill() {
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
func (b *Budget) exhausted(d *hcl.Diagnostic) hcl.Diagnostics {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spent = append(b.spent, d)
	return hcl.Diagnostics{d}
}

// With adds to the diagnostics of a pass that the budget was used up: hcl drops those of the branch of a conditional
// that is not taken, and try and can those of their arguments.
func (b *Budget) With(diags hcl.Diagnostics) hcl.Diagnostics {
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
func (b *Budget) charge(n int64, at hcl.Range) (ok bool, diags hcl.Diagnostics) {
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

// Value evaluates one expression. On an error the value is unknown, so that expressions that use it are still checked.
func (b *Budget) Value(expr hclsyntax.Expression, ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	literal := IsLiteral(expr)
	if !literal {
		if ok, diags := b.charge(0, expr.Range()); !ok {
			return cty.DynamicVal, diags
		}
	}
	v, diags := expr.Value(ctx)
	if diags.HasErrors() {
		return cty.DynamicVal, diagnostic.Placed(diags, expr.Range())
	}
	if !literal {
		d, counted := Implausible(v, expr.Range())
		// Values share parts: of two hundred lists of all lists before, each would be counted up to the limit.
		ok, spent := b.charge(counted/countedPerWork, expr.Range())
		if d != nil {
			return cty.DynamicVal, append(diags, d)
		}
		if !ok {
			return cty.DynamicVal, append(diags, spent...)
		}
	}
	return v, diags
}

// Used is how much of the work is used up.
func (b *Budget) Used() int64 { return maxWork - b.work.Load() }

// Result charges what a function has made: its elements, and 64 bytes of text as one. Text that is passed costs more,
// because it is gone through again.
func (b *Budget) Result(v cty.Value) {
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
	budget *Budget
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

// Guard meters every for expression, call and operator below a body or expression, and rejects numbers that are too
// large to be written out. What an earlier load has guarded, of a file that an editor holds, is charged to this
// budget.
func (b *Budget) Guard(below hclsyntax.Node) hcl.Diagnostics {
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
			if _, done := n.Collection.(*indexed); !done && !IsLiteral(Plain(n.Key)) {
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
func (b *Budget) meter(exprs []hclsyntax.Expression, cost func(elements, text int64) int64, takes taking,
	literals bool, call *hcl.Range) {
	for i, e := range exprs {
		if m, done := e.(metered); done {
			m.budget = b
			exprs[i] = m
		} else if literals || !IsLiteral(e) {
			exprs[i] = metered{&hclsyntax.ParenthesesExpr{Expression: e, SrcRange: e.Range()}, b, cost, takes, call}
		}
	}
}

// Implausible rejects values with more elements or text than any recipe needs, and numbers outside the range of a
// float64: hcl computes with any, but writing 1e99999999 out takes minutes. It stops counting at the limit: values may
// share parts, so that a few lines can stand for more than would ever fit into memory. counted is how many elements it
// has gone through.
func Implausible(v cty.Value, at hcl.Range) (d *hcl.Diagnostic, counted int64) {
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
