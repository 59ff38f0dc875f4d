package schema

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/recipe-rl/recipe/schema/diagnostic"
)

func header(block *hclsyntax.Block) hcl.Range {
	if n := len(block.LabelRanges); n > 0 {
		return hcl.RangeBetween(block.TypeRange, block.LabelRanges[n-1])
	}
	return block.TypeRange
}

func sortedAttributes(body *hclsyntax.Body) []*hclsyntax.Attribute {
	attrs := make([]*hclsyntax.Attribute, 0, len(body.Attributes))
	for _, attr := range body.Attributes {
		attrs = append(attrs, attr)
	}
	slices.SortFunc(attrs, func(a, b *hclsyntax.Attribute) int {
		return cmp.Compare(a.NameRange.Start.Byte, b.NameRange.Start.Byte)
	})
	return attrs
}

func noBlocks(body *hclsyntax.Body, where string) hcl.Diagnostics {
	var diags hcl.Diagnostics
	for _, inner := range body.Blocks {
		diags = append(diags, diagnostic.Problem(header(inner), "Unknown block",
			fmt.Sprintf("A block %q is not allowed in %s.", inner.Type, where)))
	}
	return diags
}

// literalString evaluates an attribute that must be written out, because it is needed before anything is evaluated.
func literalString(attr *hclsyntax.Attribute, diags *hcl.Diagnostics) string {
	const expected = `a string in quotes, like "text"`
	if v, valueDiags := attr.Expr.Value(nil); !valueDiags.HasErrors() && attr.Name != "description" &&
		(v.Type() == cty.Number || v.Type() == cty.Bool) { // the version 1.10 would become 1.1
		*diags = append(*diags, diagnostic.Problem(attr.Expr.Range(), "Literal expected",
			fmt.Sprintf("%q must be %s; got a %s.", attr.Name, expected,
				v.Type().FriendlyName())))
		return ""
	}
	v := literal(attr, cty.String, expected, diags)
	if v == cty.NilVal {
		return ""
	}
	text := v.AsString()
	if text == "" && attr.Name != "description" { // an empty one would count as one that is not there
		*diags = append(*diags, diagnostic.Problem(attr.Expr.Range(), "Empty text", fmt.Sprintf("%q is empty: write %s, "+
			"or remove it.",
			attr.Name, expected)))
	}
	return text
}

func literalBool(attr *hclsyntax.Attribute, diags *hcl.Diagnostics) bool {
	v := literal(attr, cty.Bool, "true or false", diags)
	return v != cty.NilVal && v.True()
}

func literal(attr *hclsyntax.Attribute, t cty.Type, expected string, diags *hcl.Diagnostics) cty.Value {
	if len(attr.Expr.Variables()) == 0 {
		v, valueDiags := attr.Expr.Value(nil)
		if !valueDiags.HasErrors() && !v.IsNull() && v.IsKnown() {
			if v, err := convert.Convert(v, t); err == nil {
				return v
			}
		}
	}
	*diags = append(*diags, diagnostic.Problem(attr.Expr.Range(), "Literal expected",
		fmt.Sprintf("%q must be %s; it is needed before variables and functions are evaluated.", attr.Name, expected)))
	return cty.NilVal
}
