package policy

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/schema/function"
	"github.com/recipe-rl/recipe/schema/parse"
)

var (
	conditionsSchema = &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
		{Type: "deny", LabelNames: []string{"name"}}, {Type: "warn", LabelNames: []string{"name"}},
	}}
	conditionSchema = &hcl.BodySchema{Attributes: []hcl.AttributeSchema{
		{Name: "for_each"}, {Name: "condition", Required: true}, {Name: "message", Required: true}, {Name: "address"},
	}}
	severities = map[string]string{"deny": "error", "warn": "warning"}
)

// evaluate evaluates the conditions of a file about a plan, in its JSON form. A condition that has no value denies.
func evaluate(path string, input []byte) []plan.Finding {
	findings, diags := conditions(path, input)
	if diags.HasErrors() {
		return append(findings, failed("its conditions have errors", diags.Error())...)
	}
	return findings
}

func conditions(path string, input []byte) (findings []plan.Finding, diags hcl.Diagnostics) {
	src, err := parse.ReadFile(path)
	if err != nil {
		return failed("cannot be read: "+err.Error(), ""), nil
	}
	file, diags := parse.File(filepath.Base(path), src)
	if diags.HasErrors() {
		return nil, diags
	}
	body, diags := file.Body.Content(conditionsSchema)
	if diags.HasErrors() {
		return nil, diags
	}
	if len(body.Blocks) == 0 { // it would let every plan pass, as if the plan had been checked
		return failed("has no rule, so it checks nothing", `expected at least one block deny "NAME" { … } or `+
			`warn "NAME" { … } with a condition and a message; leave the policy out when there is nothing to check`), nil
	}
	t, err := ctyjson.ImpliedType(input)
	if err != nil {
		return failed("cannot read the plan: "+err.Error(), ""), nil
	}
	planned, err := ctyjson.Unmarshal(input, t)
	if err != nil {
		return failed("cannot read the plan: "+err.Error(), ""), nil
	}
	names := &hcl.EvalContext{Variables: map[string]cty.Value{"plan": planned},
		Functions: function.All(function.Options{Files: &function.Files{Dir: filepath.Dir(path)},
			Sensitive: decode.Sensitive, Ephemeral: decode.Ephemeral})}
	for _, block := range body.Blocks {
		found, d := rule(block, names)
		findings, diags = append(findings, found...), append(diags, d...)
	}
	return findings, diags
}

// rule returns a finding for each element of for_each, or for the plan, of which the condition is true.
func rule(block *hcl.Block, names *hcl.EvalContext) (findings []plan.Finding, diags hcl.Diagnostics) {
	body, diags := block.Body.Content(conditionSchema)
	if diags.HasErrors() {
		return nil, diags
	}
	contexts := []*hcl.EvalContext{names}
	if attr := body.Attributes["for_each"]; attr != nil {
		all, d := attr.Expr.Value(names)
		if d.HasErrors() {
			return nil, d
		}
		if all.IsNull() || !all.CanIterateElements() {
			return nil, wrong(attr, "for_each is a list, a set, a map or an object")
		}
		contexts = nil
		for key, value := range all.Elements() {
			each := names.NewChild()
			each.Variables = map[string]cty.Value{"each": cty.ObjectVal(map[string]cty.Value{"key": key, "value": value})}
			contexts = append(contexts, each)
		}
	}
	for _, ctx := range contexts {
		finding, holds, d := apply(block.Type, body.Attributes, ctx)
		if diags = append(diags, d...); holds {
			findings = append(findings, finding)
		}
	}
	return findings, diags
}

// apply evaluates one condition; holds: it is true, and the finding says so.
func apply(kind string, attributes hcl.Attributes, ctx *hcl.EvalContext) (f plan.Finding, holds bool,
	diags hcl.Diagnostics) {
	condition := attributes["condition"]
	v, diags := typed(condition, cty.Bool, ctx)
	if diags.HasErrors() || v.False() {
		return f, false, diags
	}
	v, diags = typed(attributes["message"], cty.String, ctx)
	if diags.HasErrors() {
		return f, false, diags
	}
	f = plan.Finding{Severity: severities[kind], Summary: strings.TrimSpace(v.AsString())}
	if attr := attributes["address"]; attr != nil {
		if v, diags = typed(attr, cty.String, ctx); diags.HasErrors() {
			return f, false, diags
		}
		var err error
		if f.Address, err = addr.Parse(v.AsString()); err != nil {
			return f, false, wrong(attr, err.Error())
		}
	}
	return f, true, nil
}

// typed evaluates an attribute, which must have a value of a type.
func typed(attr *hcl.Attribute, want cty.Type, ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	v, diags := attr.Expr.Value(ctx)
	if diags.HasErrors() {
		return v, diags
	}
	v, _ = v.UnmarkDeep()
	v, err := convert.Convert(v, want)
	if err != nil || v.IsNull() || !v.IsKnown() {
		return v, wrong(attr, fmt.Sprintf("expected a %s", want.FriendlyName()))
	}
	return v, nil
}

func wrong(attr *hcl.Attribute, why string) hcl.Diagnostics {
	return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Wrong value of " + attr.Name, Detail: why,
		Subject: attr.Expr.Range().Ptr()}}
}
