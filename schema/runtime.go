package schema

import (
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Lookup returns the block at an address, or nil.
func (r *Recipe) Lookup(a addr.Block) *Block {
	if r.eval == nil {
		return nil
	}
	if inst, ok := r.eval.instances[a]; ok {
		return inst.block
	}
	return nil
}

func (p *evaluator) evaluation(outputs map[addr.Block]cty.Value) *evaluation {
	if outputs == nil {
		outputs = map[addr.Block]cty.Value{}
	}
	p.budget.Refill()
	return &evaluation{p: p, outputs: outputs, memo: map[memoKey]*result{}, refs: map[*instance]cty.Value{}}
}

// narrow selects the outputs that a block uses: its own, those of the blocks it needs and, where the configuration of
// such a block uses outputs, those of the blocks that it needs in turn. Without it, each of n instances of one block
// would go through the outputs of all n instances of another.
func narrow(inst *instance, instances map[addr.Block]*instance,
	outputs map[addr.Block]cty.Value) map[addr.Block]cty.Value {
	out := make(map[addr.Block]cty.Value, len(inst.block.Needs)+1)
	seen := map[*instance]bool{inst: true}
	for queue := []*instance{inst}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if v, ok := outputs[at.block.Addr]; ok {
			out[at.block.Addr] = v
		}
		if at != inst && !at.node.dynamic {
			continue
		}
		for _, need := range at.block.Needs {
			if next := instances[need.On]; next != nil && !seen[next] {
				seen[next] = true
				queue = append(queue, next)
			}
		}
	}
	return out
}

// Evaluate returns the body of a block and its meta-arguments with the given outputs of other blocks; outputs that are
// not given are unknown. The map is only read. Defaults are applied and every check of the schema runs again.
func (r *Recipe) Evaluate(a addr.Block, outputs map[addr.Block]cty.Value) (cty.Value, decode.Meta, hcl.Diagnostics) {
	inst, diags := r.instance(a)
	if inst == nil {
		return cty.NilVal, decode.Meta{}, diags
	}
	outputs = narrow(inst, r.eval.instances, outputs)
	ev := r.eval.evaluation(outputs)
	config, d, _ := ev.config(inst)
	if inst.node.plugin != nil {
		d.Ask(inst.node.block.Body, config)
	}
	meta := d.Meta(inst.node.block.Body, config, func() cty.Value { return refValue(inst.block, config, outputs[a]) })
	diags = r.eval.redact(diagnostic.Tidy(r.eval.budget.With(append(ev.diags, d.Diags...))), outputs)
	for _, diag := range diags {
		diag.Extra = InstanceExtra{Address: a, Inner: diag.Extra}
	}
	return config, meta, diags
}

func (r *Recipe) instance(a addr.Block) (*instance, hcl.Diagnostics) {
	if r.eval != nil {
		if inst, ok := r.eval.instances[a]; ok {
			return inst, nil
		}
	}
	return nil, hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Unknown address",
		Detail: fmt.Sprintf("The recipe %s has no block %s.", r.Name, a)}}
}

// EvaluateOutputs returns the values of the recipe's output blocks with the given outputs of blocks. Values of
// sensitive outputs carry the mark Sensitive.
func (r *Recipe) EvaluateOutputs(outputs map[addr.Block]cty.Value) (map[string]cty.Value, hcl.Diagnostics) {
	values := map[string]cty.Value{}
	if r.eval == nil {
		return values, nil
	}
	ev := r.eval.evaluation(outputs)
	for _, out := range r.Outputs {
		n := r.eval.root.module.outputs[out.Name]
		v := ev.value(n, r.eval.root)
		if out.Sensitive {
			v = v.Mark(decode.Sensitive)
		}
		values[out.Name] = v
	}
	return values, r.eval.redact(diagnostic.Tidy(r.eval.budget.With(ev.diags)), outputs)
}

// EvaluateCheck evaluates a precondition or postcondition of a block. Not ok: it failed, with the error_message of its
// author. An unknown condition passes.
func (r *Recipe) EvaluateCheck(check decode.Check, a addr.Block,
	outputs map[addr.Block]cty.Value) (ok bool, message string, diags hcl.Diagnostics) {
	inst, diags := r.instance(a)
	if inst == nil {
		return false, "", diags
	}
	outputs = narrow(inst, r.eval.instances, outputs)
	ev := r.eval.evaluation(outputs)
	ctx := within(ev.context(inst.node.exprs, inst.in), inst.each)
	config := inst.block.Value
	if inst.node.dynamic {
		config, _, _ = ev.config(inst)
	}
	self := refValue(inst.block, config, outputs[a])
	ok, message, diags = decode.Condition(check.Condition, check.ErrorMessage, decode.WithSelf(ctx, self))
	return ok, message, r.eval.redact(diagnostic.Tidy(r.eval.budget.With(append(ev.diags, diags...))), outputs)
}

// EvaluateExpression evaluates an expression in the root of the recipe, for `recipe console`.
func (r *Recipe) EvaluateExpression(src string, outputs map[addr.Block]cty.Value) (cty.Value, hcl.Diagnostics) {
	const filename = "<console>"
	if r.eval == nil {
		return cty.DynamicVal, hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "No recipe",
			Detail: "The recipe could not be read, so nothing can be evaluated in it."}}
	}
	if d := parse.TooLarge(filename, []byte(src)); d != nil {
		return cty.DynamicVal, hcl.Diagnostics{d}
	}
	expr, diags := hclsyntax.ParseExpression([]byte(src), filename, hcl.InitialPos)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	if diags := r.eval.budget.Guard(expr); diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	root := r.eval.root.module
	// A copy resolves the names: the recipe itself does not change.
	p := *r.eval
	p.diags, p.bad = nil, map[hclsyntax.Expression]bool{}
	n := &node{label: "console", module: root, scope: root}
	res := resolver{p: &p, node: n}
	res.add("value", expr)
	if p.diags.HasErrors() {
		return cty.DynamicVal, p.diags
	}
	ev := p.evaluation(outputs)
	v, diags := ev.eval(expr, ev.context(n.exprs, r.eval.root))
	return v, r.eval.redact(diagnostic.Tidy(r.eval.budget.With(append(ev.diags, diags...))), outputs)
}

// Diagnose turns problems that a plugin or the engine found in a block's values into diagnostics at their place in the
// file.
func (r *Recipe) Diagnose(a addr.Block, problems []spec.Problem) hcl.Diagnostics {
	inst, diags := r.instance(a)
	if inst == nil {
		return diags
	}
	for _, p := range problems {
		diag := diagnostic.Problem(decode.Locate(inst.node.block.Body, inst.node.header, p), p.Summary, p.Detail)
		if p.Warning {
			diag.Severity = hcl.DiagWarning
		}
		diag.Extra = InstanceExtra{Address: a}
		diags = append(diags, diag)
	}
	return diags
}

// Place is the file and line where the recipe sets what a path in a block's body leads to, or the last part of it that
// is in the file. It is empty without a path, and for a block that the recipe does not have.
func (r *Recipe) Place(a addr.Block, path cty.Path) string {
	inst, _ := r.instance(a)
	if inst == nil || len(path) == 0 {
		return ""
	}
	at := decode.Locate(inst.node.block.Body, inst.node.header, spec.Problem{Path: path})
	return fmt.Sprintf("%s:%d", at.Filename, at.Start.Line)
}
