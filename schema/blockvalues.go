package schema

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// blockValues evaluates the expressions of one block for its decoder.
type blockValues struct {
	ev    *evaluation
	names *module       // whose names the expressions see
	exprs []*expression // of the block, where it is to be told why a value is not known
	in    *moduleInstance
}

// decoder makes the decoder of an instance of a block, whose expressions have the context.
func (ev *evaluation) decoder(inst *instance, ctx *hcl.EvalContext, exprs []*expression) *decode.Decoder {
	n := inst.node
	t := decode.Target{Kind: n.block.Kind}
	if s := n.plugin; s != nil {
		t.Plugin, t.Config, t.Outputs, t.OneMachine = s.Name, s.Config, s.Outputs, !s.UsesNodes
		if v, ok := ev.p.opts.Plugins.(Validator); ok {
			t.Validate = func(config cty.Value) ([]spec.Problem, error) { return v.Validate(s.Kind, s.Name, config) }
		}
	}
	return &decode.Decoder{Shared: ev.p.shared, Values: &blockValues{ev: ev, names: n.scope, exprs: exprs, in: inst.in},
		Target: t,
		Ctx:    ctx, Header: n.header, Label: n.label, Fallback: ev.fallback(n, inst.in), Running: ev.outputs != nil}
}

// Value implements decode.Values.
func (b *blockValues) Value(expr hclsyntax.Expression, ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	return b.ev.eval(expr, ctx)
}

// Bad implements decode.Values.
func (b *blockValues) Bad(expr hclsyntax.Expression) bool { return b.ev.p.bad[expr] }

// Enough implements decode.Values.
func (b *blockValues) Enough() bool {
	return diagnostic.Enough(b.ev.diags) || diagnostic.Enough(b.ev.p.diags)
}

// Blamed implements decode.Values.
func (b *blockValues) Blamed(expr hclsyntax.Expression, ctx *hcl.EvalContext) bool {
	if b.ev.p.bad[expr] {
		return true
	}
	if !b.ev.diags.HasErrors() && !b.ev.p.diags.HasErrors() {
		return false
	}
	for _, e := range b.exprs {
		if e.expr == expr {
			return len(b.ev.usesOf(e, b.in, ctx)) == 0
		}
	}
	return false
}

// Block implements decode.Values.
func (b *blockValues) Block(k kind.Kind, plugin, name string) (label string, config *spec.Schema) {
	n := b.names.blocks[blockName{k, plugin, name}]
	if n == nil || n.plugin == nil {
		return "", nil
	}
	return n.label, n.plugin.Config
}
