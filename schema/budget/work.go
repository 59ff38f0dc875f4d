package budget

import (
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/diagnostic"
)

// metered is an argument of a function call or a part of a template; the work on it is charged to the budget.
type metered struct {
	*hclsyntax.ParenthesesExpr
	budget *Budget
	cost   func(elements, text int64) int64
	takes  taking
	call   *hcl.Range // nil: of a template
}

// Value is the argument; unknown, so that the call is skipped, when the budget is used up.
func (m metered) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	if ok, diags := m.budget.charge(0, m.Range()); !ok {
		return cty.DynamicVal, diags
	}
	v, diags := m.Expression.Value(ctx)
	size := sizer{elements: maxElements, text: maxText}
	size.count(v)
	if size.vast { // hcl would write it out where the function or the template takes a string
		return cty.DynamicVal, append(diags, diagnostic.Problem(m.Range(), "Number out of range", outOfRange))
	}
	cost := m.cost(maxElements-int64(size.elements), maxText-int64(size.text)) + size.sets*setWork
	if list, ok := ofOneType(v); ok && m.takes == aList {
		v = list
	} else if m.takes != anything {
		cost += size.unifying
	}
	ok, spent := m.budget.charge(cost, m.Range())
	if !ok {
		return cty.DynamicVal, append(diags, spent...)
	}
	if m.call != nil {
		m.budget.called.Store(m.call)
	}
	return v, diags
}

func tooMuchWork(at hcl.Range) *hcl.Diagnostic {
	return diagnostic.Problem(at, "Too much work", fmt.Sprintf(
		"The functions, operators and templates of a recipe together process at most %d elements or %d MiB of text. "+
			"Pass them less data, or call them less often: outside for expressions, for example.",
		maxWork, maxWork>>16))
}

// taking is what a function makes of a tuple or object.
type taking int

const (
	anything taking = iota // goes through it as it is
	oneType                // finds one type for its elements
	aList                  // converts it to a list, for which it may as well be given the list
)

func takes(function string) taking {
	switch function {
	case "chunklist", "compact", "distinct", "join", "setintersection", "setsubtract", "setunion", "sort", "tolist",
		"toset":
		return aList
	case "alltrue", "anytrue", "coalesce", "coalescelist", "formatlist", "setproduct", "sum", "tomap", "zipmap":
		return oneType
	}
	return anything
}

// ofOneType makes a list of a tuple whose elements all have one type. For that cty compares each with each.
func ofOneType(v cty.Value) (cty.Value, bool) {
	if !v.Type().IsTupleType() || v.IsMarked() || !v.IsKnown() || v.IsNull() || v.LengthInt() == 0 {
		return cty.NilVal, false
	}
	types := v.Type().TupleElementTypes()
	for _, t := range types {
		if t.HasDynamicTypes() || !t.Equals(types[0]) {
			return cty.NilVal, false
		}
	}
	return cty.ListVal(v.AsValueSlice()), true
}

// costOf estimates the work of a function on an argument of a size, in units of two microseconds or less; what the
// result costs comes to it.
func costOf(function string) func(elements, text int64) int64 {
	times := int64(1)
	switch function {
	case "distinct": // compares each with each
		return func(n, text int64) int64 { return n*n/4 + n + text/16 + 1 }
	case "jsondecode", "yamldecode": // reads it twice: for its type, and for its values
		return func(n, text int64) int64 { return n + text/4 + 12 }
	case "setunion", "setintersection", "setsubtract", "toset": // hashes and sorts
		times = 32
	case "sort", "formatlist", "setproduct":
		times = 16
	case "coalesce":
		times = 8
	case "contains", "index", "join", "jsonencode", "lookup", "yamlencode":
		times = 2
	}
	return func(n, text int64) int64 { return times*n + text/16 + 1 }
}

// work is what it costs to go through a value.
func (s *sizer) work() int64 { return maxElements - int64(s.elements) + s.sets*setWork }
