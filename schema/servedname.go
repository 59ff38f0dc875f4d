package schema

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/budget"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// servedNames reports attributes for a model that refer to the output model of an inference block which serves a
// folder, or a model by another name: the output is the name that clients send, and no trainer finds weights by it.
func (ev *evaluation) servedNames(inst *instance, ctx *hcl.EvalContext) (diags hcl.Diagnostics) {
	n, b := inst.node, inst.block
	if b.Schema == nil {
		return nil
	}
	for _, e := range n.exprs {
		a := b.Schema.Config.Attribute(e.attribute)
		if a == nil || a.Format != spec.FormatModel || len(e.refs) != 1 || e.refs[0].node == nil ||
			e.refs[0].node.block == nil || e.refs[0].node.block.Kind != kind.Inference {
			continue
		}
		t, ok := budget.Plain(e.expr).(*hclsyntax.ScopeTraversalExpr)
		if !ok {
			continue
		}
		last, ok := t.Traversal[len(t.Traversal)-1].(hcl.TraverseAttr)
		if !ok || last.Name != "model" {
			continue
		}
		for _, on := range ev.usesOf(e, inst.in, ctx) {
			if d := servedName(on.block, a, e.expr.Range(), b); d != nil {
				diags = append(diags, d)
				break
			}
		}
	}
	return diags
}

// servedName is nil where the name is the model's own, or the folder's path from the recipe's folder.
func servedName(of *Block, a *spec.Attribute, at hcl.Range, b *Block) *hcl.Diagnostic {
	if of.Meta.External != nil {
		return nil
	}
	text := func(attribute string) string {
		if !of.Value.Type().IsObjectType() || !of.Value.Type().HasAttribute(attribute) {
			return ""
		}
		v := of.Value.GetAttr(attribute)
		if v.IsMarked() || !v.IsKnown() || v.IsNull() || v.Type() != cty.String {
			return ""
		}
		return v.AsString()
	}
	model, served := text("model"), text("served_model_name")
	switch {
	case model == "":
		return nil
	case served == "" && !decode.IsModelPath(model):
		return nil
	case served == "":
		served = filepath.Base(filepath.Clean(model))
	}
	if served == model {
		return nil
	}
	if _, err := os.Stat(filepath.Join(b.dir, model)); err != nil && strings.HasPrefix(model, ".") {
		return nil // reported where it stands
	}
	if info, err := os.Stat(filepath.Join(b.dir, served)); err == nil && info.IsDir() {
		return nil // trainers look there
	}
	return diagnostic.Problem(at, "Name of a served model", fmt.Sprintf("%q in %s: the output model of %s is the name "+
		"that clients send, %q; %s does not find the weights by it. Write %s = %q, or write the model once as a local and "+
		"use it in both blocks.", a.Name, b.Addr, of.Addr, served, b.Addr, a.Name, model))
}
