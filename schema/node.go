package schema

import (
	"sync"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// node is one thing that has a value: a variable, local, output, block or module call, as declared. It is evaluated
// once for each instance of the module it stands in, in the order of its edges.
type node struct {
	label  string // as written in a reference: var.model, inference.vllm.policy, module.eval
	header hcl.Range
	module *module
	scope  *module // whose names its expressions see: the parent's for an argument of a module

	variable *parse.Variable
	argument *hclsyntax.Attribute // of a module call, for a variable that is not the root's
	local    *parse.Local
	output   *parse.Output
	call     *parse.Call
	child    *module // of call; nil when it could not be loaded
	observer *parse.Observer
	block    *parse.Block
	plugin   *PluginSchema // of block; nil when there is none

	exprs        []*expression
	edges        []edge
	depends      []dependency // depends_on, of block or call
	trajectories *node        // the block that an unset `trajectories` attribute refers to
	dynamic      bool         // its value uses outputs of blocks, other than by typed references
	done         []*result    // by instance of module; nil before evaluation and in a cycle
}

// edge reports that a node is evaluated after another, and where the recipe says so.
type edge struct {
	to        *node
	attribute string
	rng       hcl.Range
}

// expression is one expression of a node with the names it uses.
type expression struct {
	attribute string // path in the body: lora.rank
	expr      hclsyntax.Expression
	refs      []reference
	typed     bool // the schema takes blocks here
	early     bool // count and for_each: known before anything starts, so no block waits for what it names
	bad       bool // a name in it does not exist: it is not evaluated
}

// result is the result of a node in one instance of its module.
type result struct {
	value     cty.Value
	uses      []*instance // of blocks that the value uses, directly or through other values
	instances []*instance // block
	whole     cty.Value   // block: value of a reference without a key
}

// instance is one instance of a block.
type instance struct {
	block *Block
	node  *node
	in    *moduleInstance
	each  *hcl.EvalContext // holds count or each

	once sync.Once
	ref  cty.Value // see waiting
}

// waiting is the value of a reference to the block while nothing has started. Most blocks are never referred to.
func (inst *instance) waiting() cty.Value {
	inst.once.Do(func() { inst.ref = refValue(inst.block, inst.block.Value, inst.block.Mock) })
	return inst.ref
}

// declareNodes makes the nodes of a module; names that are declared twice keep their first declaration.
func (m *module) declareNodes() {
	s := m.source
	m.variables, m.locals = make(map[string]*node, len(s.Variables)), make(map[string]*node, len(s.Locals))
	m.outputs, m.calls = make(map[string]*node, len(s.Outputs)), make(map[string]*node, len(s.Calls))
	m.blocks = make(map[blockName]*node, len(s.Blocks))
	for _, d := range s.Variables {
		n := &node{label: "var." + d.Name, header: d.Header, variable: d, scope: m.parent}
		if m.call != nil {
			n.argument = m.call.call.Args[d.Name]
		}
		add(m, m.variables, d.Name, n)
	}
	for _, d := range s.Locals {
		add(m, m.locals, d.Name, &node{label: "local." + d.Name, header: d.Attr.NameRange, local: d, scope: m})
	}
	for _, d := range s.Outputs {
		add(m, m.outputs, d.Name, &node{label: "output." + d.Name, header: d.Header, output: d, scope: m})
	}
	for _, d := range s.Observers {
		m.observers = append(m.observers, &node{label: d.Address(), header: d.Header, observer: d, module: m,
			scope: m})
	}
	for _, d := range s.Calls {
		add(m, m.calls, d.Name, &node{label: "module." + d.Name, header: d.Header, call: d, scope: m})
	}
	for _, d := range s.Blocks {
		name := blockName{d.Kind, d.Plugin, d.Name}
		add(m, m.blocks, name, &node{label: name.String(), header: d.Header, block: d, scope: m})
	}
}

func add[K comparable](m *module, to map[K]*node, key K, n *node) {
	n.module = m
	if _, ok := to[key]; !ok {
		to[key] = n
	}
}

func (b blockName) String() string { return string(b.kind) + "." + b.plugin + "." + b.name }

// nodes lists the nodes of a module in the order of the file.
func (m *module) nodes() []*node {
	s := m.source
	out := make([]*node, 0, len(s.Variables)+len(s.Locals)+len(s.Outputs)+len(s.Calls)+len(s.Blocks))
	keep := func(n *node, same bool) {
		if same {
			out = append(out, n)
		}
	}
	for _, d := range s.Variables {
		n := m.variables[d.Name]
		keep(n, n.variable == d)
	}
	for _, d := range s.Locals {
		n := m.locals[d.Name]
		keep(n, n.local == d)
	}
	for _, d := range s.Calls {
		n := m.calls[d.Name]
		keep(n, n.call == d)
	}
	for _, d := range s.Blocks {
		n := m.blocks[blockName{d.Kind, d.Plugin, d.Name}]
		keep(n, n.block == d)
	}
	for _, d := range s.Outputs {
		n := m.outputs[d.Name]
		keep(n, n.output == d)
	}
	out = append(out, m.observers...)
	if n := m.blocks[defaultTrajectories]; n != nil && n.block.Implicit {
		out = append(out, n)
	}
	return out
}

// prepare finds the expressions of a node and resolves the names in them.
func (p *evaluator) prepare(n *node) {
	if m := n.module; m.call != nil {
		n.edges = append(n.edges, edge{to: m.call, attribute: "module", rng: m.call.header})
	}
	r := resolver{p: p, node: n}
	switch {
	case n.variable != nil:
		if n.argument != nil {
			call := n.module.call.call
			r.count, r.each = call.Count != nil, call.ForEach != nil
			r.add(n.argument.Name, n.argument.Expr)
		}
	case n.local != nil:
		r.add("value", n.local.Attr.Expr)
	case n.output != nil:
		if n.output.Value != nil {
			r.add("value", n.output.Value.Expr)
		}
	case n.observer != nil:
		r.observer(n.observer)
	case n.call != nil:
		r.early = true
		r.repetition(n.call.Count, n.call.ForEach)
		n.child = n.module.children[n.call.Name]
		p.diags = append(p.diags, checkArguments(n)...)
		r.dependsOn(n.call.DependsOn)
	case n.block != nil:
		r.early = true
		r.repetition(n.block.Count, n.block.ForEach)
		r.early = false
		r.count, r.each = n.block.Count != nil, n.block.ForEach != nil
		r.blockBody(n.block.Body)
		r.dependsOn(n.block.DependsOn)
	}
}

// observer collects the expressions of a block that watches the run.
func (r *resolver) observer(o *parse.Observer) {
	config, err := decode.ObserverSchema(o.Kind) // an error is reported with the block
	for _, attr := range parse.SortedAttributes(o.Body) {
		r.typed = err == nil && decode.IsReference(config, attr.Name)
		r.add(attr.Name, attr.Expr)
	}
	r.typed = false
	for _, block := range o.Body.Blocks {
		r.nested(block, block.Type+".")
	}
}

// blockBody collects the expressions of a block: its plugin's part and the meta-arguments.
func (r *resolver) blockBody(body *hclsyntax.Body) {
	var config *spec.Schema
	if r.node.plugin != nil {
		config = r.node.plugin.Config
	}
	for _, attr := range parse.SortedAttributes(body) {
		switch attr.Name {
		case "count", "for_each", "depends_on":
			continue
		}
		r.typed = config != nil && decode.IsReference(config, attr.Name)
		r.task = config != nil && decode.IsPerTask(config, attr.Name)
		r.add(attr.Name, attr.Expr)
	}
	r.typed, r.task = false, false
	for _, block := range body.Blocks {
		r.self = block.Type == "lifecycle"
		r.nested(block, block.Type+".")
		r.self = false
	}
}

// nested collects the expressions of a nested block and those in it. A dynamic block brings its iterator into scope.
func (r *resolver) nested(block *hclsyntax.Block, prefix string) {
	if block.Type == "dynamic" && len(block.Labels) == 1 {
		iterator := parse.Iterator(block)
		if attr := block.Body.Attributes["for_each"]; attr != nil {
			r.add(block.Labels[0], attr.Expr)
		}
		r.iterators = append(r.iterators, iterator)
		for _, inner := range block.Body.Blocks {
			r.nestedBody(inner.Body, block.Labels[0]+".")
		}
		r.iterators = r.iterators[:len(r.iterators)-1]
		return
	}
	r.nestedBody(block.Body, prefix)
}

func (r *resolver) nestedBody(body *hclsyntax.Body, prefix string) {
	for _, attr := range parse.SortedAttributes(body) {
		r.add(prefix+attr.Name, attr.Expr)
	}
	for _, inner := range body.Blocks {
		r.nested(inner, prefix+inner.Type+".")
	}
}

// instancesOf selects instances of a block result: all, or the one with the key.
func (res *result) instancesOf(key *addr.Key) []*instance {
	if res == nil {
		return nil
	}
	if key == nil {
		return res.instances
	}
	if i, ok := key.Int(); ok { // count instances stand in order
		if i >= 0 && i < len(res.instances) {
			return res.instances[i : i+1]
		}
		return nil
	}
	for i, inst := range res.instances {
		if inst.block.Addr.Key == *key {
			return res.instances[i : i+1]
		}
	}
	return nil
}
