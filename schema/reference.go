package schema

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/budget"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// reference is one use of a name.
type reference struct {
	node *node // variable, local, block or module call; nil for path, count, each, self, task
	// Of a module call: the output that is used; "" for all. Of task: the member. Of evaluation: the name.
	output  string
	key     *addr.Key            // instance that is written out; nil: all, or keyExpr
	keyExpr hclsyntax.Expression // instance that an expression gives
	rng     hcl.Range
	root    string
}

// resolver resolves the names in the expressions of one node and reports those that do not exist.
type resolver struct {
	p           *evaluator
	node        *node
	count, each bool                 // the node, or its module call, has them
	self        bool                 // inside lifecycle
	task        bool                 // the attribute may hold members of a task
	typed       bool                 // see expression
	early       bool                 // see expression
	iterators   []string             // of dynamic blocks around
	globals     map[string]cty.Value // names besides those of the recipe, in a test
}

func (r *resolver) add(attribute string, expr hclsyntax.Expression) {
	if budget.IsLiteral(expr) {
		return
	}
	e := &expression{attribute: attribute, expr: expr, typed: r.typed, early: r.early}
	w := &walker{r: r, e: e, scopes: nil}
	_ = hclsyntax.Walk(expr, w) // the walker reports into the evaluator
	if len(e.refs) > 0 || e.bad {
		r.node.exprs = append(r.node.exprs, e)
	}
	if e.bad {
		r.p.bad[expr] = true
	}
	for _, ref := range e.refs {
		r.link(ref, attribute)
	}
}

// link adds the edges that a reference makes.
func (r *resolver) link(ref reference, attribute string) {
	if ref.node == nil {
		return
	}
	r.node.edges = append(r.node.edges, edge{to: ref.node, attribute: attribute, rng: ref.rng})
	if ref.node.call == nil || ref.node.child == nil && childOf(ref.node) == nil {
		return
	}
	for name, out := range childOf(ref.node).outputs {
		if ref.output == "" || ref.output == name {
			r.node.edges = append(r.node.edges, edge{to: out, attribute: attribute, rng: ref.rng})
		}
	}
}

// childOf is the module of a call; nil when it could not be loaded.
func childOf(call *node) *module { return call.module.children[call.call.Name] }

// walker finds the names in an expression that are not bound inside it.
type walker struct {
	r      *resolver
	e      *expression
	scopes []map[string]struct{}
	keys   map[*hclsyntax.ScopeTraversalExpr]hclsyntax.Expression
	steps  map[*hclsyntax.ScopeTraversalExpr]following
}

// following is what follows a computed key or a splat.
type following struct {
	traversal hcl.Traversal
	splat     bool
}

func (w *walker) Enter(n hclsyntax.Node) hcl.Diagnostics {
	switch n := n.(type) {
	case hclsyntax.ChildScope:
		w.scopes = append(w.scopes, n.LocalNames)
	case *hclsyntax.RelativeTraversalExpr:
		if index, ok := budget.Plain(n.Source).(*hclsyntax.IndexExpr); ok {
			w.follow(index.Collection, following{traversal: n.Traversal})
		}
	case *hclsyntax.SplatExpr:
		if each, ok := n.Each.(*hclsyntax.RelativeTraversalExpr); ok {
			w.follow(n.Source, following{traversal: each.Traversal, splat: true})
		}
	case *hclsyntax.IndexExpr:
		if t, ok := budget.Plain(n.Collection).(*hclsyntax.ScopeTraversalExpr); ok {
			if w.keys == nil {
				w.keys = map[*hclsyntax.ScopeTraversalExpr]hclsyntax.Expression{}
			}
			w.keys[t] = n.Key
		}
	case *hclsyntax.FunctionCallExpr:
		w.function(n)
	case *hclsyntax.ScopeTraversalExpr:
		if diagnostic.Enough(w.r.p.diags) {
			w.e.bad = true
			return nil
		}
		name := n.Traversal.RootName()
		for _, scope := range w.scopes {
			if _, bound := scope[name]; bound {
				return nil
			}
		}
		if slices.Contains(w.r.iterators, name) {
			return nil
		}
		ref, d := w.r.resolve(n.Traversal, w.keys[n] != nil)
		if d == nil && ref.node != nil && ref.node.call != nil && ref.output == "" {
			ref, d = w.r.stepOf(ref, w.steps[n])
		}
		if d != nil {
			w.e.bad = true
			w.r.p.diags = append(w.r.p.diags, d)
			return nil
		}
		if ref.key == nil {
			ref.keyExpr = w.keys[n]
		}
		w.e.refs = append(w.e.refs, ref)
	}
	return nil
}

func (w *walker) Exit(n hclsyntax.Node) hcl.Diagnostics {
	if _, ok := n.(hclsyntax.ChildScope); ok {
		w.scopes = w.scopes[:len(w.scopes)-1]
	}
	return nil
}

// follow keeps what follows a computed key or a splat of a name: of a module it is the one output that is used.
func (w *walker) follow(of hclsyntax.Expression, s following) {
	name, ok := budget.Plain(of).(*hclsyntax.ScopeTraversalExpr)
	if !ok {
		return
	}
	if w.steps == nil {
		w.steps = map[*hclsyntax.ScopeTraversalExpr]following{}
	}
	w.steps[name] = s
}

// function reports an unknown function; hcl would too, but without suggesting the nearest name.
func (w *walker) function(call *hclsyntax.FunctionCallExpr) {
	if _, ok := w.r.p.base.Functions[call.Name]; ok {
		return
	}
	if w.e.bad = true; diagnostic.Enough(w.r.p.diags) {
		return
	}
	w.r.p.diags = append(w.r.p.diags, diagnostic.Problem(call.NameRange, "Unknown function",
		fmt.Sprintf("There is no function %q.%s docs/language.md lists them all.", call.Name,
			diagnostic.DidYouMean(call.Name, slices.Sorted(maps.Keys(w.r.p.base.Functions))))))
}

// resolve finds what a traversal names. Indexed says that an index with a computed key follows it.
func (r *resolver) resolve(t hcl.Traversal, indexed bool) (reference, *hcl.Diagnostic) {
	ref := reference{rng: t.SourceRange(), root: t.RootName()}
	m := r.node.scope
	if m == nil {
		m = r.node.module
	}
	switch root := t.RootName(); root {
	case "var":
		return r.named(ref, t, m.variables, "variable", `variable %q { … }`)
	case "local":
		return r.named(ref, t, m.locals, "local value", `locals { %s = … }`)
	case "module":
		return r.module(ref, t, m)
	case "path":
		return ref, oneOf(t, "path", "module", "root")
	case "evaluation":
		var d *hcl.Diagnostic
		ref.output, d = r.evaluation(t)
		return ref, d
	case "count":
		if !r.count {
			return ref, diagnostic.Problem(ref.rng, "No count here",
				`count.index is only defined in a block that has count = …. With for_each, use each.key and each.value.`)
		}
		return ref, oneOf(t, "count", "index")
	case "each":
		if !r.each {
			return ref, diagnostic.Problem(ref.rng, "No for_each here",
				`each.key and each.value are only defined in a block that has for_each = …. With count, use count.index.`)
		}
		return ref, oneOf(t, "each", "key", "value")
	case "self":
		if !r.self {
			return ref, diagnostic.Problem(ref.rng, "No self here",
				"self is the block itself and is only defined in lifecycle { postcondition { … } }.")
		}
		return ref, nil
	case "task":
		if !r.task {
			return ref, diagnostic.Problem(ref.rng, "No task here",
				"task.NAME is a member of the task that a rollout is made of. It is only defined in attributes that are "+
					`filled in for each task, such as command of environment "agent".`)
		}
		var ok bool
		if ref.output, ok = parse.AttrStep(t, 1); !ok || len(t) > 2 {
			return ref, diagnostic.Problem(ref.rng, "Unknown name",
				"Expected task.NAME, where NAME is a member of the tasks. A member of a member cannot be named: a value "+
					"that is no text is put in as JSON.")
		}
		return ref, nil
	default:
		if _, ok := r.globals[root]; ok {
			return ref, nil
		}
		if kind.Kind(root).Valid() {
			return r.block(ref, t, m, indexed)
		}
		return ref, r.unknownRoot(t)
	}
}

// evaluation is the name of an evaluation block of the recipe: evaluation.NAME is the text evaluation/NAME, with which
// the names of its metrics begin.
func (r *resolver) evaluation(t hcl.Traversal) (name string, d *hcl.Diagnostic) {
	var known []string
	for _, o := range r.p.root.module.source.Observers {
		if o.Kind == "evaluation" {
			known = append(known, o.Name)
		}
	}
	name, ok := parse.AttrStep(t, 1)
	if !ok || len(t) > 2 {
		return "", diagnostic.Problem(t.SourceRange(), "Incomplete reference", "Expected evaluation.NAME, the name of an "+
			"evaluation block. A metric of it is named in quotes, for example \"evaluation/NAME/pass@1\".")
	}
	if !slices.Contains(known, name) {
		return "", diagnostic.Problem(t.SourceRange(), "Undeclared block", fmt.Sprintf("There is no block evaluation.%s.%s",
			name, diagnostic.DidYouMean(name, known)))
	}
	return name, nil
}

func oneOf(t hcl.Traversal, root string, names ...string) *hcl.Diagnostic {
	if name, ok := parse.AttrStep(t, 1); ok && slices.Contains(names, name) {
		return nil
	}
	return diagnostic.Problem(t.SourceRange(), "Unknown name",
		fmt.Sprintf("Expected %s.%s.", root, strings.Join(names, " or "+root+".")))
}

func (r *resolver) unknownRoot(t hcl.Traversal) *hcl.Diagnostic {
	name := t.RootName()
	roots := []string{"var", "local", "module", "path", "evaluation", "count", "each"}
	roots = append(roots, slices.Sorted(maps.Keys(r.globals))...)
	for _, k := range kind.All() {
		roots = append(roots, string(k))
	}
	detail := fmt.Sprintf(
		"There is no %q here. References start with var, local, module, path, evaluation or a kind of block: %s.%s", name,
		kindList(), diagnostic.DidYouMean(name, roots))
	if len(t) == 1 {
		detail += fmt.Sprintf(" If you mean text, write it in quotes: %q.", name)
	}
	return diagnostic.Problem(t.SourceRange(), "Unknown name", detail)
}

func kindList() string {
	names := make([]string, 0, 6)
	for _, k := range kind.All() {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}

func (r *resolver) named(ref reference, t hcl.Traversal, in map[string]*node, what,
	declare string) (reference, *hcl.Diagnostic) {
	name, ok := parse.AttrStep(t, 1)
	if !ok {
		return ref, diagnostic.Problem(ref.rng, "Incomplete reference", fmt.Sprintf("Expected %s.NAME, the name of a %s.",
			t.RootName(), what))
	}
	n, ok := in[name]
	if !ok {
		hint := diagnostic.DidYouMean(name, slices.Sorted(maps.Keys(in)))
		if hint == "" {
			hint = fmt.Sprintf(" Declare it: "+declare+".", name)
		}
		return ref, diagnostic.Problem(ref.rng, "Undeclared "+what, fmt.Sprintf("There is no %s %q.%s", what, name, hint))
	}
	ref.node = n
	return ref, nil
}

func (r *resolver) module(ref reference, t hcl.Traversal, m *module) (reference, *hcl.Diagnostic) {
	ref, d := r.named(ref, t, m.calls, "module", `module %q { source = "./…" }`)
	if d != nil {
		return ref, d
	}
	rest := t[2:]
	if ref.key, rest = parse.Key(rest); ref.key != nil && ref.node.call.Count == nil && ref.node.call.ForEach == nil {
		return ref, diagnostic.Problem(ref.rng, "Not repeated", fmt.Sprintf("%s has neither count nor for_each: remove "+
			"the index.",
			ref.node.label))
	}
	return r.outputOf(ref, rest)
}

// stepOf finds the one output of a module call that is used of each of its instances. A key of a call without instances
// is the name of an output, and a splat of instances by for_each gives one object.
func (r *resolver) stepOf(ref reference, s following) (reference, *hcl.Diagnostic) {
	if call := ref.node.call; s.splat && call.ForEach != nil || !s.splat && call.Count == nil && call.ForEach == nil {
		return ref, nil
	}
	return r.outputOf(ref, s.traversal)
}

// outputOf finds the output of a module call that a traversal behind the call begins with.
func (r *resolver) outputOf(ref reference, rest hcl.Traversal) (reference, *hcl.Diagnostic) {
	name, ok := parse.AttrStep(rest, 0)
	child := childOf(ref.node)
	if !ok || child == nil {
		return ref, nil
	}
	if _, ok := child.outputs[name]; !ok {
		return ref, diagnostic.Problem(ref.rng, "Unknown output", fmt.Sprintf("The module %q has no output %q; it has %s.%s",
			ref.node.call.Name, name,
			diagnostic.List(slices.Sorted(maps.Keys(child.outputs))), diagnostic.DidYouMean(name,
				slices.Sorted(maps.Keys(child.outputs)))))
	}
	ref.output = name
	return ref, nil
}

func (r *resolver) block(ref reference, t hcl.Traversal, m *module, indexed bool) (reference, *hcl.Diagnostic) {
	k := kind.Kind(t.RootName())
	plugin, ok1 := parse.AttrStep(t, 1)
	name, ok2 := parse.AttrStep(t, 2)
	if !ok1 || !ok2 {
		return ref, diagnostic.Problem(ref.rng, "Incomplete reference",
			fmt.Sprintf("Expected %s.PLUGIN.NAME, for example %s.", k,
				example(m, k)))
	}
	n, ok := m.blocks[blockName{k, plugin, name}]
	if !ok {
		return ref, r.noBlock(ref, m, blockName{k, plugin, name})
	}
	ref.node = n
	rest := t[3:]
	ref.key, rest = parse.Key(rest)
	switch repeated := n.block.Repeated(); {
	case ref.key != nil && !repeated:
		return ref, diagnostic.Problem(ref.rng, "Not repeated", fmt.Sprintf("%s has neither count nor for_each: remove "+
			"the index.",
			n.label))
	case ref.key == nil && repeated && !indexed && len(rest) > 0:
		if step, ok := parse.AttrStep(rest, 0); ok {
			return ref, diagnostic.Problem(ref.rng, "Index missing",
				fmt.Sprintf("%s is repeated: write %s%s.%s for one of its instances.", n.label, n.label, exampleKey(n),
					step))
		}
		return ref, nil
	case indexed && ref.key == nil:
		return ref, nil // what follows is checked when the key is known
	}
	if step, ok := parse.AttrStep(rest, 0); ok {
		return ref, r.member(ref, n, step)
	}
	return ref, nil
}

func exampleKey(n *node) string {
	if n.block.Count != nil {
		return "[0]"
	}
	return `["key"]`
}

// member checks that a block has that attribute or output.
func (r *resolver) member(ref reference, n *node, name string) *hcl.Diagnostic {
	if n.plugin == nil || name == "address" || name == "kind" {
		return nil
	}
	if n.plugin.hasMember(name) {
		return nil
	}
	return diagnostic.Problem(ref.rng, "Unknown attribute", fmt.Sprintf("%s has no attribute or output %q; its outputs "+
		"are %s.%s",
		n.label, name,
		diagnostic.List(decode.OutputNames(n.plugin.Outputs)), diagnostic.DidYouMean(name, n.plugin.members())))
}

func example(m *module, k kind.Kind) string {
	for _, n := range m.nodes() {
		if n.block != nil && n.block.Kind == k {
			return n.label
		}
	}
	return string(k) + ".vllm.policy"
}

// noBlock reports a reference to an undeclared block and suggests another kind, plugin or name.
func (r *resolver) noBlock(ref reference, m *module, want blockName) *hcl.Diagnostic {
	var same, all []string
	for name, n := range m.blocks {
		all = append(all, n.label)
		if name.kind == want.kind {
			same = append(same, n.label)
		}
	}
	slices.Sort(same)
	slices.Sort(all)
	hint := diagnostic.DidYouMean(want.String(), same)
	for _, label := range all {
		if hint == "" && strings.HasSuffix(label, "."+want.name) {
			hint = fmt.Sprintf(" Did you mean %q?", label)
		}
	}
	if hint == "" {
		hint = diagnostic.DidYouMean(want.String(), all)
	}
	if hint == "" {
		hint = fmt.Sprintf(" Declare it: %s %q %q { … }.", want.kind, want.plugin, want.name)
	}
	return diagnostic.Problem(ref.rng, "Undeclared block", fmt.Sprintf("There is no block %s.%s", want, hint))
}
