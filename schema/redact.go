package schema

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/addr"
)

// redact removes secrets from messages: values that env has read, sensitive variables, and sensitive outputs.
func (p *evaluator) redact(diags hcl.Diagnostics, outputs map[addr.Block]cty.Value) hcl.Diagnostics {
	if len(diags) == 0 {
		return diags
	}
	p.addVariables()
	for a, values := range outputs {
		inst := p.instances[a]
		if inst == nil || inst.block.Schema == nil || inst.block.Schema.Outputs == nil ||
			!values.Type().IsObjectType() || !values.IsKnown() || values.IsNull() {
			continue
		}
		for _, attr := range inst.block.Schema.Outputs.Attributes {
			if attr.Sensitive && values.Type().HasAttribute(attr.Name) {
				p.secrets.AddValue(values.GetAttr(attr.Name))
			}
		}
	}
	return p.secrets.Redact(diags, p.budget.Refill)
}

// addVariables adds the values of variables that are sensitive, or that were given a sensitive value.
func (p *evaluator) addVariables() {
	for _, m := range p.loader.modules {
		for _, n := range m.variables {
			for _, done := range n.done {
				if done != nil {
					p.secrets.AddMarked(done.value)
				}
			}
		}
	}
}

// Secrets returns the texts that the recipe keeps secret, as far as they are known before anything runs: values of
// sensitive variables, those that env has read, and what blocks are given of either. The longest comes first.
func (r *Recipe) Secrets() []string {
	if r.eval == nil {
		return nil
	}
	r.eval.addVariables()
	for _, inst := range r.eval.instances {
		r.eval.secrets.AddMarked(inst.block.Value)
		for _, v := range inst.block.Meta.Environment {
			r.eval.secrets.AddMarked(v)
		}
	}
	return r.eval.secrets.List()
}

// Redacted returns a function that hides the recipe's secrets in a text, such as what a plugin says of its block.
func (r *Recipe) Redacted() func(text string) string {
	if len(r.Secrets()) == 0 {
		return func(text string) string { return text }
	}
	return r.eval.secrets.Replacer().Replace
}
