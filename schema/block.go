package schema

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// computeBlock expands a block and evaluates the body of each instance with unknown outputs.
func (ev *evaluation) computeBlock(n *node, mi *moduleInstance) *result {
	res := &result{}
	reps, ok := ev.repeat(n, mi, n.block.Count, n.block.ForEach)
	if !ok {
		// The number of instances is unknown: check one body, with an unknown index.
		reps = []repetition{{each: &hcl.EvalContext{Variables: map[string]cty.Value{
			"count": cty.ObjectVal(map[string]cty.Value{"index": cty.UnknownVal(cty.Number)}), "each": cty.DynamicVal}}}}
		res.whole = cty.DynamicVal
	}
	ctx := ev.context(n.exprs, mi)
	for _, rep := range reps {
		inst := &instance{node: n, in: mi, each: rep.each, block: &Block{Addr: mi.address(n, rep.key), Schema: n.plugin,
			Range: n.header, dir: ev.p.root.module.source.Dir}}
		if d := longAddress(n, mi, inst.block.Addr); d != nil {
			ev.diags = append(ev.diags, d)
			res.whole = cty.DynamicVal // one error says it for all instances
			break
		}
		ev.fill(inst, ctx)
		if ok {
			res.instances = append(res.instances, inst)
			ev.p.instances[inst.block.Addr] = inst
		}
	}
	return res
}

// fill evaluates an instance while loading.
func (ev *evaluation) fill(inst *instance, shared *hcl.EvalContext) {
	n, b := inst.node, inst.block
	ctx := within(shared, inst.each)
	d := ev.decoder(inst, ctx, n.exprs)
	b.Value = cty.DynamicVal
	if n.plugin != nil {
		b.Value = d.Config(n.block.Body)
		d.Ask(n.block.Body, b.Value)
		b.Contents = d.Reads
	}
	b.Mock = ev.mock(b)
	b.Meta = d.Meta(n.block.Body, b.Value, inst.waiting)
	ev.needs(inst, ctx)
	d.Diags = append(d.Diags, ev.servedNames(inst, ctx)...)
	for _, diag := range d.Diags {
		diag.Extra = InstanceExtra{Address: b.Addr, Inner: diag.Extra}
	}
	ev.diags = append(ev.diags, d.Diags...)
}

// config evaluates the configuration of an instance again, with outputs.
func (ev *evaluation) config(inst *instance) (cty.Value, *decode.Decoder, *hcl.EvalContext) {
	n := inst.node
	ctx := within(ev.context(n.exprs, inst.in), inst.each)
	d := ev.decoder(inst, ctx, nil)
	if n.plugin == nil {
		return cty.DynamicVal, d, ctx
	}
	return d.Config(n.block.Body), d, ctx
}

// fallback holds the values of attributes that the language fills in when the recipe leaves them out.
func (ev *evaluation) fallback(n *node, mi *moduleInstance) map[string]cty.Value {
	if n.trajectories == nil {
		return nil
	}
	return map[string]cty.Value{"trajectories": ev.value(n.trajectories, mi.up(n.trajectories.module))}
}

// up is the instance of m that mi stands in.
func (mi *moduleInstance) up(m *module) *moduleInstance {
	for mi.module != m && mi.parent != nil {
		mi = mi.parent
	}
	return mi
}

// needs collects the blocks that must come before an instance: those that its references and depends_on name.
func (ev *evaluation) needs(inst *instance, ctx *hcl.EvalContext) {
	n, b := inst.node, inst.block
	byAddr := map[addr.Block]*Need{}
	need := func(on *instance, condition Condition, attribute string, at hcl.Range) {
		if earlier, ok := byAddr[on.block.Addr]; ok {
			if strength(condition) > strength(earlier.Condition) {
				earlier.Condition = condition
			}
			return
		}
		if on.block.Addr.Kind == kind.Sync {
			ev.diags = append(ev.diags, diagnostic.Problem(at, "Reference to a sync block",
				fmt.Sprintf(
					"%s needs %s, but a sync block starts last, after the blocks that it connects. Remove the "+
						"reference; only outputs may refer to a sync block.", b.Addr, on.block.Addr)))
			return
		}
		byAddr[on.block.Addr] = &Need{On: on.block.Addr, Condition: condition, Attribute: attribute, Range: at}
	}
	for _, e := range n.exprs {
		if e.early {
			continue
		}
		used, exact := ev.named(e, b.Value)
		if !exact {
			used = ev.usesOf(e, inst.in, ctx)
		}
		for _, on := range used {
			need(on, Healthy, e.attribute, e.expr.Range())
		}
	}
	if n.trajectories != nil && n.block.Body.Attributes["trajectories"] == nil {
		if res := ev.result(n.trajectories, inst.in.up(n.trajectories.module)); res != nil {
			for _, on := range res.instances {
				need(on, Healthy, "trajectories", n.header)
			}
		}
	}
	for _, dep := range n.depends {
		for _, on := range ev.dependencies(dep, inst.in, ctx) {
			need(on, dep.condition, "depends_on", dep.ref.rng)
		}
	}
	for mi := inst.in; mi.parent != nil; mi = mi.parent {
		for _, dep := range mi.module.call.depends {
			for _, on := range ev.dependencies(dep, mi.parent, nil) {
				need(on, dep.condition, "depends_on", dep.ref.rng)
			}
		}
	}
	b.Needs = make([]Need, 0, len(byAddr))
	for _, edge := range byAddr {
		b.Needs = append(b.Needs, *edge)
	}
	slices.SortFunc(b.Needs, func(x, y Need) int { return addr.Compare(x.On, y.On) })
}

func strength(c Condition) int {
	return slices.Index([]Condition{Started, Healthy, Completed}, c)
}

// named returns the blocks in the value of a typed reference; exact when the value is known. They may be fewer than the
// names in the expression: `var.big ? inference.a.x : inference.a.y` needs only one of them.
func (ev *evaluation) named(e *expression, config cty.Value) (used []*instance, exact bool) {
	if !e.typed || strings.Contains(e.attribute, ".") || !config.Type().IsObjectType() ||
		!config.Type().HasAttribute(e.attribute) {
		return nil, false
	}
	v, _ := config.GetAttr(e.attribute).Unmark()
	if !v.IsKnown() {
		return nil, false
	}
	if v.IsNull() {
		return nil, true
	}
	elements := []cty.Value{v}
	if v.Type().IsTupleType() || v.Type().IsListType() {
		elements = v.AsValueSlice()
	}
	for _, elem := range elements {
		ref, err := spec.RefOf(elem)
		if err != nil {
			return nil, false
		}
		a, err := addr.Parse(ref.Address)
		if err != nil {
			return nil, false
		}
		inst, ok := ev.find(a)
		if !ok {
			return nil, false
		}
		used = append(used, inst)
	}
	return used, true
}

// find returns an instance by address, while loading too.
func (ev *evaluation) find(a addr.Block) (*instance, bool) {
	inst, ok := ev.p.instances[a]
	return inst, ok
}

// dependency is one element of depends_on.
type dependency struct {
	ref       reference
	condition Condition
}

// dependencies are the block instances that an element of depends_on stands for.
func (ev *evaluation) dependencies(dep dependency, mi *moduleInstance, ctx *hcl.EvalContext) []*instance {
	if dep.ref.node.block != nil {
		return ev.usesOfRef(&dep.ref, mi, ctx)
	}
	child := dep.ref.node.child
	if child == nil {
		return nil
	}
	var out []*instance
	for _, inner := range child.within[mi] {
		if dep.ref.key == nil || inner.key == *dep.ref.key {
			out = append(out, blocksBelow(inner)...)
		}
	}
	return out
}

func blocksBelow(mi *moduleInstance) []*instance {
	var out []*instance
	for _, n := range mi.module.blocks {
		if mi.index < len(n.done) && n.done[mi.index] != nil {
			out = append(out, n.done[mi.index].instances...)
		}
	}
	for _, child := range mi.module.children {
		for _, inner := range child.within[mi] {
			out = append(out, blocksBelow(inner)...)
		}
	}
	slices.SortFunc(out, func(a, b *instance) int { return addr.Compare(a.block.Addr, b.block.Addr) })
	return out
}

// InstanceExtra is the Extra of a diagnostic about one instance of a block.
type InstanceExtra struct {
	Address addr.Block
	Inner   any
}

// UnwrapDiagnosticExtra gives hcl.DiagnosticExtra what hcl itself has put there.
func (e InstanceExtra) UnwrapDiagnosticExtra() interface{} { return e.Inner }

// DiagnosticAddress is the address of the block that the diagnostic is about.
func (e InstanceExtra) DiagnosticAddress() string { return e.Address.String() }
