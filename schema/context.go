package schema

import (
	"path/filepath"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// context holds what the expressions refer to, and nothing else: its size does not grow with the recipe.
func (ev *evaluation) context(exprs []*expression, mi *moduleInstance) *hcl.EvalContext {
	if len(exprs) == 0 {
		return ev.p.base
	}
	var c contents
	for _, e := range exprs {
		for i := range e.refs {
			c.add(ev, &e.refs[i], mi)
		}
	}
	if c.vars == nil && c.locals == nil && c.blocks == nil && c.modules == nil && !c.path && c.task == nil &&
		c.evaluations == nil {
		return ev.p.base
	}
	ctx := ev.p.base.NewChild()
	ctx.Variables = c.variables(mi)
	return ctx
}

// within adds count or each to a context.
func within(ctx, each *hcl.EvalContext) *hcl.EvalContext {
	if each == nil {
		return ctx
	}
	child := ctx.NewChild()
	child.Variables = each.Variables
	return child
}

type contents struct {
	vars, locals map[string]cty.Value
	blocks       map[string]map[string]map[string]cty.Value // kind, plugin, name
	modules      map[*node]map[string]bool                  // outputs used of each call; nil: all of them
	modulesValue map[string]cty.Value
	path         bool
	task         map[string]cty.Value // by member: the text that stands for it
	evaluations  map[string]cty.Value // by name: how the names of its metrics begin
}

func (c *contents) add(ev *evaluation, ref *reference, mi *moduleInstance) {
	n := ref.node
	switch {
	case n == nil && ref.root == "task":
		put(&c.task, ref.output, func() cty.Value { return cty.StringVal(spec.TaskMember(ref.output)) })
	case n == nil && ref.root == "evaluation":
		put(&c.evaluations, ref.output, func() cty.Value { return cty.StringVal(decode.EvaluationPrefix + ref.output) })
	case n == nil:
		c.path = c.path || ref.root == "path"
	case n.variable != nil:
		put(&c.vars, n.variable.Name, func() cty.Value { return ev.value(n, mi) })
	case n.local != nil:
		put(&c.locals, n.local.Name, func() cty.Value { return ev.value(n, mi) })
	case n.call != nil:
		if c.modules == nil {
			c.modules, c.modulesValue = map[*node]map[string]bool{}, map[string]cty.Value{}
		}
		used, seen := c.modules[n]
		switch {
		case ref.output == "" || (seen && used == nil):
			c.modules[n] = nil
		case used == nil:
			c.modules[n] = map[string]bool{ref.output: true}
		default:
			used[ref.output] = true
		}
		c.modulesValue[n.call.Name] = ev.moduleValue(n, mi, c.modules[n])
	case n.block != nil:
		d := n.block
		if c.blocks == nil {
			c.blocks = map[string]map[string]map[string]cty.Value{}
		}
		plugins := c.blocks[string(d.Kind)]
		if plugins == nil {
			plugins = map[string]map[string]cty.Value{}
			c.blocks[string(d.Kind)] = plugins
		}
		names := plugins[d.Plugin]
		put(&names, d.Name, func() cty.Value { return ev.value(n, mi) })
		plugins[d.Plugin] = names
	}
}

func put(m *map[string]cty.Value, name string, value func() cty.Value) {
	if *m == nil {
		*m = map[string]cty.Value{}
	}
	if _, ok := (*m)[name]; !ok {
		(*m)[name] = value()
	}
}

func (c *contents) variables(mi *moduleInstance) map[string]cty.Value {
	out := make(map[string]cty.Value, 4)
	if c.vars != nil {
		out["var"] = cty.ObjectVal(c.vars)
	}
	if c.locals != nil {
		out["local"] = cty.ObjectVal(c.locals)
	}
	if c.modulesValue != nil {
		out["module"] = cty.ObjectVal(c.modulesValue)
	}
	if c.evaluations != nil {
		out["evaluation"] = cty.ObjectVal(c.evaluations)
	}
	if c.task != nil {
		out["task"] = cty.ObjectVal(c.task)
	}
	for kind, plugins := range c.blocks {
		byPlugin := make(map[string]cty.Value, len(plugins))
		for plugin, names := range plugins {
			byPlugin[plugin] = cty.ObjectVal(names)
		}
		out[kind] = cty.ObjectVal(byPlugin)
	}
	if c.path {
		root := mi
		for root.parent != nil {
			root = root.parent
		}
		out["path"] = cty.ObjectVal(map[string]cty.Value{
			"module": cty.StringVal(filepath.ToSlash(mi.module.source.Dir)),
			"root":   cty.StringVal(filepath.ToSlash(root.module.source.Dir))})
	}
	return out
}

// moduleValue is an object of outputs, or a tuple or object of those when the module is repeated.
func (ev *evaluation) moduleValue(n *node, mi *moduleInstance, used map[string]bool) cty.Value {
	if n.child == nil || ev.result(n, mi) == nil {
		return cty.DynamicVal
	}
	instances := n.child.within[mi]
	values := make([]cty.Value, len(instances))
	for i, child := range instances {
		outputs := make(map[string]cty.Value, len(n.child.outputs))
		for name, out := range n.child.outputs {
			if used == nil || used[name] {
				outputs[name] = ev.value(out, child)
			}
		}
		values[i] = cty.ObjectVal(outputs)
	}
	switch {
	case n.call.Count != nil:
		return cty.TupleVal(values)
	case n.call.ForEach != nil:
		byKey := make(map[string]cty.Value, len(values))
		for i, child := range instances {
			key, _ := child.key.Str()
			byKey[key] = values[i]
		}
		return cty.ObjectVal(byKey)
	case len(values) == 1:
		return values[0]
	}
	return cty.DynamicVal
}

// uses lists the block instances that a node's expressions use. Ctx gives the key of x[count.index].
func (ev *evaluation) uses(n *node, mi *moduleInstance, ctx *hcl.EvalContext) []*instance {
	var out []*instance
	var seen map[*instance]bool
	for _, e := range n.exprs {
		if e.early {
			continue
		}
		for _, inst := range ev.usesOf(e, mi, ctx) {
			if seen == nil {
				seen = map[*instance]bool{}
			}
			if !seen[inst] {
				seen[inst] = true
				out = append(out, inst)
			}
		}
	}
	return out
}

func (ev *evaluation) usesOf(e *expression, mi *moduleInstance, ctx *hcl.EvalContext) []*instance {
	var out []*instance
	for i := range e.refs {
		ref := &e.refs[i]
		if ref.node != nil {
			out = append(out, ev.usesOfRef(ref, mi, ctx)...)
		}
	}
	return out
}

func (ev *evaluation) usesOfRef(ref *reference, mi *moduleInstance, ctx *hcl.EvalContext) []*instance {
	res := ev.result(ref.node, mi)
	if res == nil {
		return nil
	}
	key := ref.key
	if key == nil && ref.keyExpr != nil {
		key = staticKey(ref.keyExpr, ctx)
	}
	if ref.node.block != nil {
		return res.instancesOf(key)
	}
	child := ref.node.child
	if child == nil {
		return res.uses
	}
	out := res.uses
	for _, inner := range child.within[mi] {
		if key != nil && inner.key != *key {
			continue
		}
		for name, output := range child.outputs {
			if ref.output != "" && ref.output != name {
				continue
			}
			if r := ev.result(output, inner); r != nil {
				out = append(out[:len(out):len(out)], r.uses...)
			}
		}
	}
	return out
}

// staticKey evaluates the key of an index expression; nil when it is unknown here (inside a for expression).
func staticKey(expr hclsyntax.Expression, ctx *hcl.EvalContext) *addr.Key {
	if ctx == nil {
		return nil
	}
	v, diags := expr.Value(ctx)
	if diags.HasErrors() {
		return nil
	}
	if key, ok := addr.KeyOf(v); ok {
		return &key
	}
	return nil
}
