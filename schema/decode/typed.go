package decode

import (
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/budget"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// reference evaluates an attribute that takes blocks. Conditionals and lists are followed here rather than by hcl,
// which requires both branches to have the same type: inference blocks of different plugins do not.
func (d *Decoder) reference(a *spec.Attribute, expr hclsyntax.Expression, ctx *hcl.EvalContext) cty.Value {
	v := d.follow(a, expr, ctx)
	if !v.IsKnown() || v.IsNull() {
		return v
	}
	if a.List && v.Type().IsObjectType() && isMapOfBlocks(v) {
		return cty.TupleVal(v.AsValueSlice()) // all instances of a block with for_each, by key
	}
	if !a.List && !v.IsMarked() && v.Type().IsTupleType() {
		if n := d.repeatedBlock(expr); n != "" {
			d.report(diagnostic.Problem(expr.Range(), "Index missing",
				fmt.Sprintf("%q expects one block, but %s is repeated: write %s[0] for one of its instances.", a.Name,
					n, n)))
			return cty.DynamicVal
		}
	}
	return v
}

func isMapOfBlocks(v cty.Value) bool {
	if _, err := spec.RefOf(v); err == nil || v.IsMarked() || v.LengthInt() == 0 {
		return false
	}
	for it := v.ElementIterator(); it.Next(); {
		_, elem := it.Element()
		if _, err := spec.RefOf(elem); err != nil {
			return false
		}
	}
	return true
}

func (d *Decoder) repeatedBlock(expr hclsyntax.Expression) string {
	if t, ok := budget.Unwrap(expr).(*hclsyntax.ScopeTraversalExpr); ok && len(t.Traversal) == 3 {
		plugin, _ := parse.AttrStep(t.Traversal, 1)
		name, _ := parse.AttrStep(t.Traversal, 2)
		return t.Traversal.RootName() + "." + plugin + "." + name
	}
	return ""
}

func (d *Decoder) follow(a *spec.Attribute, expr hclsyntax.Expression, ctx *hcl.EvalContext) cty.Value {
	if d.Values.Bad(expr) {
		return cty.DynamicVal
	}
	switch e := budget.Unwrap(expr).(type) {
	case *hclsyntax.ConditionalExpr:
		cond, diags := e.Condition.Value(ctx)
		cond, _ = cond.Unmark()
		if diags.HasErrors() || cond.Type() != cty.Bool || !cond.IsKnown() || cond.IsNull() {
			d.report(diagnostic.Placed(diags, e.Condition.Range())...)
			d.static(a, expr)
			return cty.DynamicVal
		}
		if cond.True() {
			d.static(a, e.FalseResult)
			return d.follow(a, e.TrueResult, ctx)
		}
		d.static(a, e.TrueResult)
		return d.follow(a, e.FalseResult, ctx)
	case *hclsyntax.TupleConsExpr:
		if !a.List {
			break
		}
		values := make([]cty.Value, 0, len(e.Exprs))
		for _, inner := range e.Exprs {
			values = append(values, d.follow(a, inner, ctx))
		}
		return cty.TupleVal(values)
	}
	v, diags := d.Values.Value(expr, ctx)
	d.report(diags...)
	if !v.IsKnown() {
		d.static(a, expr)
	}
	return v
}

// static checks the kinds of the blocks that an expression of unknown value may yield: the branches of a conditional,
// the elements of a list, the collection of a for expression or splat.
func (d *Decoder) static(a *spec.Attribute, expr hclsyntax.Expression) {
	switch e := budget.Unwrap(expr).(type) {
	case *hclsyntax.ConditionalExpr:
		d.static(a, e.TrueResult)
		d.static(a, e.FalseResult)
	case *hclsyntax.TupleConsExpr:
		for _, inner := range e.Exprs {
			d.static(a, inner)
		}
	case *hclsyntax.ForExpr:
		if t, ok := budget.Unwrap(e.ValExpr).(*hclsyntax.ScopeTraversalExpr); ok && len(t.Traversal) == 1 &&
			t.Traversal.RootName() == e.ValVar {
			d.static(a, budget.Plain(e.CollExpr))
			return
		}
		d.static(a, e.ValExpr)
	case *hclsyntax.SplatExpr:
		if e.Each == hclsyntax.Expression(e.Item) {
			d.static(a, e.Source)
		}
	case *hclsyntax.IndexExpr:
		d.static(a, budget.Plain(e.Collection))
	case *hclsyntax.ScopeTraversalExpr:
		d.staticTraversal(a, e)
	}
}

func (d *Decoder) staticTraversal(a *spec.Attribute, e *hclsyntax.ScopeTraversalExpr) {
	t := e.Traversal
	rest := t[min(3, len(t)):]
	if _, rest = parse.Key(rest); len(rest) > 0 {
		d.staticMember(a, e, rest)
		return
	}
	plugin, ok1 := parse.AttrStep(t, 1)
	name, ok2 := parse.AttrStep(t, 2)
	for _, k := range kind.All() {
		if t.RootName() != string(k) || !ok1 || !ok2 {
			continue
		}
		if !slices.Contains(a.References, k) {
			d.report(diagnostic.Problem(e.Range(), "Reference to the wrong kind",
				fmt.Sprintf("In %s: the attribute %q expects %s; got %s.%s.%s, %s block.", d.Label, a.Name,
					a.Friendly(), k, plugin, name, withArticle(string(k)))))
		}
	}
}

// staticMember reports an attribute of a block where the block itself is expected.
func (d *Decoder) staticMember(a *spec.Attribute, e *hclsyntax.ScopeTraversalExpr, rest hcl.Traversal) {
	plugin, ok1 := parse.AttrStep(e.Traversal, 1)
	name, ok2 := parse.AttrStep(e.Traversal, 2)
	member, ok3 := parse.AttrStep(rest, 0)
	if !ok1 || !ok2 || !ok3 {
		return
	}
	label, config := d.Values.Block(kind.Kind(e.Traversal.RootName()), plugin, name)
	if config == nil || IsReference(config, member) {
		return
	}
	d.report(diagnostic.Problem(e.Range(), "Reference to the wrong kind",
		fmt.Sprintf(
			"In %s: the attribute %q expects %s; got %q, one of the values of %s. Refer to the block itself: %s.",
			d.Label, a.Name, a.Friendly(), member, label, label)))
}

func withArticle(noun string) string {
	switch noun[0] {
	case 'a', 'e', 'i', 'o', 'u':
		return "an " + noun
	}
	return "a " + noun
}
