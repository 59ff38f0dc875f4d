package budget

import (
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/function"
)

// operand is what an operator compares, converts or goes through as a whole: hcl does that anew in each iteration of a
// for expression, and writes numbers out where it needs a string. It is charged as an argument of a function is.
type operand struct {
	*hclsyntax.ParenthesesExpr
	budget *Budget
	number bool // a string is converted to a number
	branch bool // of a conditional: its type is unified with that of the other branch

	divisor  bool   // of a remainder, which hcl computes for 0, too
	compared string // "[…]" or "{…}": it is compared with one that is written out; empty: it is not
}

// comparedWith says with what kind of value == and != compare, where it is written out; empty: it is not.
func comparedWith(n *hclsyntax.BinaryOpExpr, other hclsyntax.Expression) string {
	if n.Op != hclsyntax.OpEqual && n.Op != hclsyntax.OpNotEqual {
		return ""
	}
	switch Plain(other).(type) {
	case *hclsyntax.TupleConsExpr:
		return "[…]"
	case *hclsyntax.ObjectConsExpr:
		return "{…}"
	}
	return ""
}

// neverEqual is a warning for a list, set or map that is compared with what has the type of a tuple or object.
func (o *operand) neverEqual(t cty.Type) *hcl.Diagnostic {
	return diagnostic.Warning(o.Range(), "Never equal", fmt.Sprintf("This is a %s, and %s has a type of its own: the "+
		"two are never "+
		"equal, whatever they hold. Compare length(…) with a number, or convert the other side with to%s(…).",
		t.FriendlyName(), o.compared, strings.Fields(t.FriendlyName())[0]))
}

// Value is the operand; unknown, which makes the result unknown, when it is out of bounds.
func (o *operand) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	if ok, diags := o.budget.charge(0, o.Range()); !ok {
		return cty.DynamicVal, diags
	}
	v, diags := o.Expression.Value(ctx)
	if o.compared != "" && v.Type().IsCollectionType() {
		diags = append(diags, o.neverEqual(v.Type()))
	}
	if o.divisor && isZero(v) {
		return cty.DynamicVal, append(diags, diagnostic.Problem(o.Range(), "Division by zero",
			"A remainder (%) needs a divisor other than 0."))
	}
	size := sizer{elements: maxElements, text: maxText}
	size.count(v)
	if size.vast || o.number && vastText(v) {
		return cty.DynamicVal, append(diags, diagnostic.Problem(o.Range(), "Number out of range", outOfRange))
	}
	// An operation on a single short value is free: the expression itself is bounded by the length of the file.
	cost := size.work() - 1 + (maxText-int64(size.text))/256
	if o.branch {
		cost += size.unifying
	}
	ok, spent := o.budget.charge(cost, o.Range())
	if !ok {
		return cty.DynamicVal, append(diags, spent...)
	}
	return v, diags
}

func isZero(v cty.Value) bool {
	v, _ = v.Unmark()
	if !v.IsKnown() || v.IsNull() {
		return false
	}
	n, err := convert.Convert(v, cty.Number)
	return err == nil && n.AsBigFloat().Sign() == 0
}

// vastText reports that a value is the text of a number outside the range of a float64.
func vastText(v cty.Value) bool {
	v, _ = v.Unmark()
	if !v.IsKnown() || v.IsNull() || v.Type() != cty.String {
		return false
	}
	n, err := convert.Convert(v, cty.Number)
	return err == nil && function.Vast(n.AsBigFloat())
}

// operands guards operands in place. A literal is checked by itself, unless its text stands for a number.
func (b *Budget) operands(like operand, exprs ...*hclsyntax.Expression) {
	for _, e := range exprs {
		switch x := (*e).(type) {
		case *operand:
			x.budget = b
			continue
		case nil:
			continue
		case *hclsyntax.LiteralValueExpr:
			if !like.divisor {
				continue
			}
		case *hclsyntax.TemplateExpr:
			if x.IsStringLiteral() && !like.number {
				continue
			}
		}
		o := like
		o.budget, o.ParenthesesExpr = b, &hclsyntax.ParenthesesExpr{Expression: *e, SrcRange: (*e).Range()}
		*e = &o
	}
}

// nodesOf is how many nodes an expression has; nil has none.
func nodesOf(e hclsyntax.Expression) (n int64) {
	if e == nil {
		return 0
	}
	_ = hclsyntax.VisitAll(e, func(hclsyntax.Node) hcl.Diagnostics { n++; return nil })
	return n
}
