package schema

import (
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/schema/diagnostic"
)

// repetition is one instance that count or for_each makes.
type repetition struct {
	key  addr.Key
	each *hcl.EvalContext
}

// repetition collects the names in count and for_each.
func (r *resolver) repetition(count, forEach *hclsyntax.Attribute) {
	if count != nil {
		r.add("count", count.Expr)
	}
	if forEach != nil {
		r.add("for_each", forEach.Expr)
	}
}

// repeat evaluates count or for_each. Not ok: the number of instances is unknown, and the reason is reported.
func (ev *evaluation) repeat(n *node, mi *moduleInstance, count,
	forEach *hclsyntax.Attribute) (reps []repetition, ok bool) {
	switch {
	case count != nil:
		return ev.count(count, ev.context(n.exprs, mi))
	case forEach != nil:
		return ev.forEach(forEach, ev.context(n.exprs, mi))
	}
	return []repetition{{}}, true
}

func (ev *evaluation) fail(at hcl.Range, summary, detail string) ([]repetition, bool) {
	ev.diags = append(ev.diags, diagnostic.Problem(at, summary, detail))
	return nil, false
}

func (ev *evaluation) count(attr *hclsyntax.Attribute, ctx *hcl.EvalContext) ([]repetition, bool) {
	at := attr.Expr.Range()
	v, diags := ev.eval(attr.Expr, ctx)
	if ev.diags = append(ev.diags, diags...); diags.HasErrors() || ev.p.bad[attr.Expr] {
		return nil, false
	}
	if v.ContainsMarked() {
		return ev.fail(at, "Sensitive count",
			"count sets the number of blocks, which is shown everywhere: it must not use a sensitive value.")
	}
	if !v.IsWhollyKnown() {
		return ev.fail(at, "Unknown count",
			"count must be known before anything starts: it must not use outputs of blocks. Use a variable or a "+
				"local value.")
	}
	number, err := convert.Convert(v, cty.Number)
	if err != nil || number.IsNull() || !number.AsBigFloat().IsInt() || number.AsBigFloat().Sign() < 0 {
		return ev.fail(at, "Invalid count", "count is a whole number of at least 0, got "+diagnostic.Describe(v)+".")
	}
	if number.AsBigFloat().Cmp(cty.NumberIntVal(decode.MaxInstances).AsBigFloat()) > 0 {
		return ev.fail(at, "Too many instances", fmt.Sprintf("count is at most %d, got %s.", decode.MaxInstances,
			diagnostic.Describe(v)))
	}
	times, _ := number.AsBigFloat().Int64()
	reps := make([]repetition, times)
	for i := range reps {
		reps[i] = repetition{key: addr.IntKey(i), each: &hcl.EvalContext{Variables: map[string]cty.Value{
			"count": cty.ObjectVal(map[string]cty.Value{"index": cty.NumberIntVal(int64(i))})}}}
	}
	return reps, true
}

func (ev *evaluation) forEach(attr *hclsyntax.Attribute, ctx *hcl.EvalContext) ([]repetition, bool) {
	at := attr.Expr.Range()
	v, diags := ev.eval(attr.Expr, ctx)
	if ev.diags = append(ev.diags, diags...); diags.HasErrors() || ev.p.bad[attr.Expr] {
		return nil, false
	}
	const expected = "for_each is a map, an object, or a set or list of different strings"
	if v.IsMarked() || keysMarked(v) {
		return ev.fail(at, "Sensitive for_each",
			"The keys of for_each become part of addresses, which are shown everywhere: they must not use a sensitive "+
				"value. If the value is not secret, wrap it in nonsensitive(…).")
	}
	if !v.IsKnown() {
		return ev.fail(at, "Unknown for_each",
			"for_each must be known before anything starts: it must not use outputs of blocks. Use a variable or a "+
				"local value.")
	}
	t := v.Type()
	if v.IsNull() || !(t.IsMapType() || t.IsObjectType() || t.IsSetType() || t.IsListType() || t.IsTupleType()) {
		return ev.fail(at, "Invalid for_each", expected+", got "+diagnostic.Describe(v)+".")
	}
	if v.LengthInt() > decode.MaxInstances {
		return ev.fail(at, "Too many instances", fmt.Sprintf("for_each has at most %d elements, got %d.", decode.MaxInstances,
			v.LengthInt()))
	}
	keyed := t.IsMapType() || t.IsObjectType()
	seen := make(map[string]bool, v.LengthInt())
	reps := make([]repetition, 0, v.LengthInt())
	for it := v.ElementIterator(); it.Next(); {
		key, elem := it.Element()
		if !keyed {
			if !elem.IsKnown() {
				return ev.fail(at, "Unknown for_each",
					"The keys of for_each must be known before anything starts: they must not use outputs of "+
						"blocks. Use a variable or a local value.")
			}
			if elem.IsNull() || elem.Type() != cty.String {
				return ev.fail(at, "Invalid for_each", expected+", got "+diagnostic.Describe(elem)+" in it.")
			}
			key = elem
		}
		name := key.AsString()
		if seen[name] {
			return ev.fail(at, "Repeated key",
				fmt.Sprintf("%s; %q is in the list twice. Use toset(…) to drop duplicates.", expected, name))
		}
		seen[name] = true
		reps = append(reps, repetition{key: addr.StringKey(name),
			each: &hcl.EvalContext{Variables: map[string]cty.Value{
				"each": cty.ObjectVal(map[string]cty.Value{"key": cty.StringVal(name), "value": elem})}}})
	}
	return reps, true
}

// keysMarked reports whether the elements that become keys are marked: all of a list or set.
func keysMarked(v cty.Value) bool {
	return v.IsKnown() && (v.Type().IsListType() || v.Type().IsTupleType() || v.Type().IsSetType()) &&
		v.ContainsMarked()
}

// expandCall makes the instances of the module that a call names, inside one instance of the module it stands in.
func (ev *evaluation) expandCall(n *node, mi *moduleInstance) {
	child := n.child
	if child == nil || ev.outputs != nil || child.refused {
		return
	}
	if child.within == nil {
		child.within = map[*moduleInstance][]*moduleInstance{}
	}
	reps, _ := ev.repeat(n, mi, n.call.Count, n.call.ForEach)
	if len(child.instances)+len(reps) > decode.MaxInstances {
		child.refused = true
		ev.diags = append(ev.diags, diagnostic.Problem(n.header, "Too many instances",
			fmt.Sprintf("A module has at most %d instances.", decode.MaxInstances)))
		return
	}
	for _, rep := range reps {
		path := n.call.Name + rep.key.String()
		if mi.path != "" {
			path = mi.path + "." + path
		}
		inst := &moduleInstance{module: child, path: path, index: len(child.instances), parent: mi, key: rep.key,
			each: rep.each}
		child.instances = append(child.instances, inst)
		child.within[mi] = append(child.within[mi], inst)
	}
}
