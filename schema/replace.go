package schema

import (
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/schema/testfile"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// replace changes the body of a block to one for the plugin that takes its place.
func replace(n *node, r *testfile.Replacement) {
	if n.plugin == nil {
		return
	}
	config, body := n.plugin.Config, *n.block.Body
	body.Attributes, body.Blocks = hclsyntax.Attributes{}, nil
	for name, attr := range n.block.Body.Attributes {
		if decode.IsMetaAttribute(name) || config.Attribute(name) != nil || config.Block(name) != nil {
			body.Attributes[name] = attr
		}
	}
	for name, attr := range r.Body.Attributes {
		body.Attributes[name] = attr
	}
	given := map[string]bool{}
	for _, block := range r.Body.Blocks {
		given[block.Type] = true
	}
	for _, block := range n.block.Body.Blocks {
		name := block.Type
		if name == "dynamic" && len(block.Labels) == 1 {
			name = block.Labels[0]
		}
		// placement and runtime are about the machine of the plugin that is replaced
		meta := decode.IsMetaBlock(name) && name != "placement" && name != "runtime"
		if !given[name] && (meta || config.Block(name) != nil || config.Attribute(name) != nil) {
			body.Blocks = append(body.Blocks, block)
		}
	}
	body.Blocks = append(body.Blocks, r.Body.Blocks...)
	n.block.Body = &body
}

// mock is the outputs that a test gives to a block, or cty.NilVal.
func (ev *evaluation) mock(b *Block) cty.Value {
	for i := range ev.p.opts.Mocks {
		m := &ev.p.opts.Mocks[i]
		if m.Block != b.Addr && m.Block != b.Addr.Config() || b.Schema == nil || b.Schema.Outputs == nil {
			continue
		}
		values := map[string]cty.Value{}
		for _, a := range b.Schema.Outputs.Attributes {
			values[a.Name] = cty.NullVal(a.Type)
		}
		for name, given := range m.Outputs {
			a := b.Schema.Outputs.Attribute(name)
			if a == nil {
				ev.diags = append(ev.diags, diagnostic.Problem(m.Range, "Unknown output", fmt.Sprintf("%s has no output %q; it "+
					"has %s.%s",
					b.Addr, name, diagnostic.List(decode.OutputNames(b.Schema.Outputs)), diagnostic.DidYouMean(name,
						decode.OutputNames(b.Schema.Outputs)))))
				continue
			}
			v, err := spec.Convert(given, a.Type)
			if err != nil {
				ev.diags = append(ev.diags, diagnostic.Problem(m.Range, "Wrong type", fmt.Sprintf("The output %q of %s is %s: %s.",
					name,
					b.Addr, a.Friendly(), err)))
				v = cty.UnknownVal(a.Type)
			}
			values[name] = v
		}
		return cty.ObjectVal(values)
	}
	return cty.NilVal
}

// checkSubstitutes reports replacements and mocks that fit no declared block.
func checkSubstitutes(modules []*module, replace []testfile.Replacement,
	mocks []testfile.Mock) (diags hcl.Diagnostics) {
	declared := func(r testfile.Replacement) bool {
		return slices.ContainsFunc(modules, func(m *module) bool {
			return slices.ContainsFunc(m.source.Blocks, func(b *parse.Block) bool {
				return b.Kind == r.Kind && b.Plugin == r.Plugin
			})
		})
	}
	missing := func(at hcl.Range, what string) {
		diags = append(diags, diagnostic.Problem(at, "No such block", "The recipe declares no block "+what+"."))
	}
	for _, r := range replace {
		if !declared(r) {
			missing(r.Range, string(r.Kind)+"."+r.Plugin)
		}
	}
	for _, m := range mocks {
		want := blockName{m.Block.Kind, m.Block.Plugin, m.Block.Name}
		if modules[0].blocks[want] == nil {
			missing(m.Range, m.Block.String())
		}
	}
	return diags
}

// EvaluateAssertion evaluates what must hold after a run: in the root of the recipe, with the outputs of its blocks
// and, besides the names of the recipe, globals. There are no diagnostics when it holds.
func (r *Recipe) EvaluateAssertion(a testfile.Assertion, outputs map[addr.Block]cty.Value,
	globals map[string]cty.Value) hcl.Diagnostics {
	p := *r.eval
	p.diags, p.bad = nil, map[hclsyntax.Expression]bool{}
	n := &node{label: "assert", module: r.eval.root.module, scope: r.eval.root.module}
	res := resolver{p: &p, node: n, globals: globals}
	for _, e := range []hcl.Expression{a.Condition, a.Message} {
		if expr, ok := e.(hclsyntax.Expression); ok {
			res.add("assert", expr)
		}
	}
	if p.diags.HasErrors() {
		return p.diags
	}
	ev := p.evaluation(outputs)
	ctx := within(ev.context(n.exprs, r.eval.root), &hcl.EvalContext{Variables: globals})
	ok, message, diags := decode.Condition(a.Condition, a.Message, ctx)
	if diags = append(ev.diags, diags...); diags.HasErrors() {
		return r.eval.redact(diagnostic.Tidy(diags), outputs)
	}
	at := a.Condition.Range()
	failed := &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Assertion failed", Detail: message, Subject: &at,
		Expression: a.Condition, EvalContext: ctx}
	if v, _ := a.Condition.Value(ctx); !v.IsKnown() {
		failed.Summary = "Assertion without a result"
		failed.Detail = "The condition uses a value that is known only after an apply: write command = apply in the run."
	} else if ok {
		return nil
	}
	return r.eval.redact(append(diags, failed), outputs)
}
