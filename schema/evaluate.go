package schema

import (
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/budget"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/input"
	"github.com/recipe-rl/recipe/schema/secret"
)

// evaluator holds everything that evaluating a recipe needs; it does not change after Load.
type evaluator struct {
	loader    *loader
	budget    *budget.Budget
	root      *moduleInstance
	opts      Options
	base      *hcl.EvalContext // functions only
	shared    *decode.Shared
	given     map[string]input.Given
	diags     hcl.Diagnostics
	bad       map[hclsyntax.Expression]bool // name something that does not exist; not evaluated
	instances map[addr.Block]*instance
	secrets   *secret.Texts
	read      *names // variables of the environment
	alerts    []*decode.Alert
	held      []*decode.Evaluation
	unread    []string // names of evaluations with a mistake that is reported
	trackers  []*decode.Tracking
	settings  []Setting
}

// evaluation is one pass over the values of a recipe. While loading there are no outputs and results stay in the
// nodes;
// later, results that draw on outputs are computed again on demand and kept for the length of the pass.
type evaluation struct {
	p       *evaluator
	outputs map[addr.Block]cty.Value // nil while loading
	memo    map[memoKey]*result
	refs    map[*instance]cty.Value
	diags   hcl.Diagnostics
}

type memoKey struct {
	node *node
	in   *moduleInstance
}

// evaluateAll computes every node in order.
func (p *evaluator) evaluateAll(nodes []*node) {
	ev := &evaluation{p: p}
	total := 0
	for _, n := range nodes {
		n.dynamic = isDynamic(n)
		n.done = make([]*result, len(n.module.instances))
		for i, mi := range n.module.instances {
			n.done[i] = ev.compute(n, mi)
			if n.block != nil && n.done[i] != nil {
				total += len(n.done[i].instances)
			}
		}
		if total > maxTotal {
			ev.diags = append(ev.diags, diagnostic.Problem(n.header, "Too many blocks",
				fmt.Sprintf("A recipe has at most %d blocks after count and for_each.", maxTotal)))
			break
		}
	}
	p.diags = append(p.diags, ev.diags...)
}

// isDynamic says whether a node's value can change once blocks have outputs. A typed reference does not count: in the
// value of a block it is reduced to address and kind.
func isDynamic(n *node) bool {
	for _, e := range n.exprs {
		if e.typed || e.early {
			continue
		}
		for _, ref := range e.refs {
			if ref.node == nil {
				continue
			}
			if ref.node.block != nil || ref.node.dynamic {
				return true
			}
			if child := ref.node.child; child != nil {
				for name, out := range child.outputs {
					if (ref.output == "" || ref.output == name) && out.dynamic {
						return true
					}
				}
			}
		}
	}
	return false
}

// result returns the result of a node, computed again when outputs may have changed it. Nil: in a cycle.
func (ev *evaluation) result(n *node, mi *moduleInstance) *result {
	var done *result
	if mi.index < len(n.done) {
		done = n.done[mi.index]
	}
	if ev.outputs == nil || !n.dynamic || done == nil || n.block != nil {
		return done
	}
	key := memoKey{n, mi}
	if res, ok := ev.memo[key]; ok {
		return res
	}
	ev.memo[key] = done // the graph has no cycles here; this only guards against one
	res := ev.compute(n, mi)
	ev.memo[key] = res
	return res
}

func (ev *evaluation) value(n *node, mi *moduleInstance) cty.Value {
	res := ev.result(n, mi)
	switch {
	case res == nil:
		return cty.DynamicVal
	case n.block == nil:
		return res.value
	case ev.outputs == nil && res.whole != cty.NilVal:
		return res.whole
	}
	values := make([]cty.Value, len(res.instances))
	for i, inst := range res.instances {
		values[i] = ev.ref(inst)
	}
	whole := gather(n.block.Count != nil, n.block.ForEach != nil, res.instances, values)
	if ev.outputs == nil {
		res.whole = whole
	}
	return whole
}

// gather makes the value of a reference to all instances: a tuple for count, an object for for_each.
func gather(count, forEach bool, instances []*instance, values []cty.Value) cty.Value {
	switch {
	case count:
		return cty.TupleVal(values)
	case forEach:
		byKey := make(map[string]cty.Value, len(values))
		for i, inst := range instances {
			key, ok := inst.block.Addr.Key.Str()
			if !ok {
				return cty.DynamicVal
			}
			byKey[key] = values[i]
		}
		return cty.ObjectVal(byKey)
	case len(values) == 1:
		return values[0]
	}
	return cty.DynamicVal
}

// ref is the value of a reference to one instance, with its outputs when it has given any.
func (ev *evaluation) ref(inst *instance) cty.Value {
	if ev.outputs != nil {
		if v, ok := ev.refs[inst]; ok {
			return v
		}
		outputs, started := ev.outputs[inst.block.Addr]
		if started {
			config := inst.block.Value
			if inst.node.dynamic {
				config, _, _ = ev.config(inst)
			}
			v := refValue(inst.block, config, outputs)
			ev.refs[inst] = v
			return v
		}
	}
	return inst.waiting()
}

// compute evaluates a node in one instance of its module.
func (ev *evaluation) compute(n *node, mi *moduleInstance) *result {
	switch {
	case n.variable != nil:
		return ev.computeVariable(n, mi)
	case n.local != nil:
		return ev.computeExpression(n, mi, n.local.Attr.Expr)
	case n.output != nil && n.output.Value != nil:
		return ev.computeExpression(n, mi, n.output.Value.Expr)
	case n.observer != nil:
		return ev.computeObserver(n, mi)
	case n.call != nil:
		ev.expandCall(n, mi)
		return &result{value: cty.DynamicVal, uses: ev.uses(n, mi, nil)}
	case n.block != nil:
		return ev.computeBlock(n, mi)
	}
	return &result{value: cty.DynamicVal}
}

func (ev *evaluation) computeExpression(n *node, mi *moduleInstance, expr hclsyntax.Expression) *result {
	ctx := ev.context(n.exprs, mi)
	v, diags := ev.eval(expr, ctx)
	ev.diags = append(ev.diags, diags...)
	return &result{value: v, uses: ev.uses(n, mi, ctx)}
}

// eval evaluates one expression. On an error the value is unknown, so that expressions that use it are still checked.
func (ev *evaluation) eval(expr hclsyntax.Expression, ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	if ev.p.bad[expr] {
		return cty.DynamicVal, nil
	}
	return ev.p.budget.Value(expr, ctx)
}

func (ev *evaluation) computeVariable(n *node, mi *moduleInstance) *result {
	res := &result{}
	given, at := cty.NilVal, n.header
	if n.argument != nil {
		at = n.argument.Expr.Range()
		ctx := within(ev.context(n.exprs, mi.parent), mi.each)
		v, diags := ev.eval(n.argument.Expr, ctx)
		ev.diags = append(ev.diags, diags...)
		given, res.uses = v, ev.uses(n, mi.parent, ctx)
	} else if mi.parent == nil {
		if g, ok := ev.p.given[n.variable.Name]; ok {
			if g.Broken {
				res.value = cty.UnknownVal(n.variable.Type.WithoutOptionalAttributesDeep())
				return res
			}
			given, at = g.Value, g.Range
		}
	}
	if n.module.call != nil && n.argument == nil && n.variable.Fallback == nil {
		res.value = cty.UnknownVal(n.variable.Type.WithoutOptionalAttributesDeep()) // reported at the call
		return res
	}
	var diags hcl.Diagnostics
	res.value, diags = input.ValueOf(n.variable, given, at, ev.p.base)
	ev.diags = append(ev.diags, diags...)
	return res
}
