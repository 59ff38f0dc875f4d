package schema

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/budget"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/sdk/kind"
)

const dependsOnForm = `Write depends_on = [inference.vllm.policy] or depends_on = [{ block = trainer.grpo.warmup, ` +
	`condition = "completed" }].`

// dependsOn reads depends_on, which is never evaluated: it names blocks.
func (r *resolver) dependsOn(attr *hclsyntax.Attribute) {
	if attr == nil {
		return
	}
	list, ok := budget.Unwrap(attr.Expr).(*hclsyntax.TupleConsExpr)
	if !ok {
		r.fail(attr.Expr.Range(), "List expected", "depends_on is a list of blocks and modules. "+dependsOnForm)
		return
	}
	for _, elem := range list.Exprs {
		condition := Healthy
		target := budget.Unwrap(elem)
		if object, ok := target.(*hclsyntax.ObjectConsExpr); ok {
			if target, condition, ok = r.conditional(object); !ok {
				continue
			}
		}
		r.dependency(target, condition)
	}
}

func (r *resolver) fail(at hcl.Range, summary, detail string) {
	r.p.diags = append(r.p.diags, diagnostic.Problem(at, summary, detail))
}

// conditional reads { block = …, condition = "…" }.
func (r *resolver) conditional(
	object *hclsyntax.ObjectConsExpr) (target hclsyntax.Expression, condition Condition, ok bool) {
	condition = Healthy
	for _, item := range object.Items {
		switch key := hcl.ExprAsKeyword(item.KeyExpr); key {
		case "block":
			target = budget.Unwrap(item.ValueExpr)
		case "condition":
			v, diags := item.ValueExpr.Value(nil)
			if diags.HasErrors() || v.Type() != cty.String || v.IsNull() || strength(Condition(v.AsString())) < 0 {
				r.fail(item.ValueExpr.Range(), "Unknown condition",
					`condition is "started", "healthy" or "completed", in quotes.`)
				return nil, "", false
			}
			condition = Condition(v.AsString())
		default:
			r.fail(item.KeyExpr.Range(), "Unknown attribute", "An element of depends_on has block and condition. "+
				dependsOnForm)
			return nil, "", false
		}
	}
	if target == nil {
		r.fail(object.Range(), "Missing attribute", "An element of depends_on needs a block. "+dependsOnForm)
	}
	return target, condition, target != nil
}

func (r *resolver) dependency(target hclsyntax.Expression, condition Condition) {
	var keyExpr hclsyntax.Expression
	if index, ok := target.(*hclsyntax.IndexExpr); ok {
		target, keyExpr = budget.Plain(index.Collection), index.Key
	}
	t, ok := target.(*hclsyntax.ScopeTraversalExpr)
	if !ok {
		r.fail(target.Range(), "Block expected", "depends_on names blocks and modules, not values. "+dependsOnForm)
		return
	}
	ref, d := r.resolve(t.Traversal, keyExpr != nil)
	if d != nil {
		r.p.diags = append(r.p.diags, d)
		return
	}
	if ref.node == nil || (ref.node.block == nil && ref.node.call == nil) || ref.output != "" {
		r.fail(target.Range(), "Block expected", "depends_on names blocks and modules, not values. "+dependsOnForm)
		return
	}
	steps := 3
	if ref.node.call != nil {
		steps = 2
	}
	if ref.key != nil {
		steps++
	}
	if len(t.Traversal) > steps {
		r.fail(target.Range(), "Block expected", fmt.Sprintf("depends_on names a whole block: write %s. %s",
			ref.node.label, dependsOnForm))
		return
	}
	if keyExpr != nil {
		ref.keyExpr = keyExpr
		r.add("depends_on", keyExpr)
	}
	if ref.node.block != nil && condition == Completed && ref.node.block.Kind.Life() != kind.Job {
		r.fail(target.Range(), "Never completed",
			fmt.Sprintf(
				"%s is a %s: it runs until the recipe ends. Only a trainer completes; use \"healthy\" or \"started\".",
				ref.node.label, ref.node.block.Kind.Life()))
		return
	}
	r.node.depends = append(r.node.depends, dependency{ref: ref, condition: condition})
	r.link(ref, "depends_on")
	if ref.node.call != nil {
		r.linkBlocks(ref)
	}
}

// linkBlocks orders a node after every block of a module that it depends on.
func (r *resolver) linkBlocks(ref reference) {
	var below func(m *module)
	below = func(m *module) {
		if m == nil {
			return
		}
		for _, n := range m.nodes() {
			if n.block == nil {
				continue
			}
			r.node.edges = append(r.node.edges, edge{to: n, attribute: "depends_on", rng: ref.rng})
		}
		for _, child := range m.children {
			below(child)
		}
	}
	below(childOf(ref.node))
}

// checkArguments compares the arguments of a module call with the variables of the module.
func checkArguments(n *node) (diags hcl.Diagnostics) {
	if n.child == nil {
		return nil
	}
	declared := slices.Sorted(maps.Keys(n.child.variables))
	for _, name := range slices.Sorted(maps.Keys(n.call.Args)) {
		if !slices.Contains(declared, name) {
			diags = append(diags, diagnostic.Problem(n.call.Args[name].NameRange, "Unknown argument",
				fmt.Sprintf("The module at %s has no variable %q; it has %s.%s", n.child.source.Path, name,
					strings.Join(declared, ", "), diagnostic.DidYouMean(name, declared))))
		}
	}
	for _, name := range declared {
		if v := n.child.variables[name].variable; v.Fallback == nil && n.call.Args[name] == nil {
			diags = append(diags, diagnostic.Problem(n.header, "Missing argument",
				fmt.Sprintf("The module %q needs a value for its variable %q: write %s = ….", n.call.Name, name, name)))
		}
	}
	return diags
}
