package parse

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/diagnostic"
)

// Header is the place of a block's type and labels.
func Header(block *hclsyntax.Block) hcl.Range {
	if n := len(block.LabelRanges); n > 0 {
		return hcl.RangeBetween(block.TypeRange, block.LabelRanges[n-1])
	}
	return block.TypeRange
}

// SortedAttributes are the attributes of a body in the order of the file.
func SortedAttributes(body *hclsyntax.Body) []*hclsyntax.Attribute {
	attrs := make([]*hclsyntax.Attribute, 0, len(body.Attributes))
	for _, attr := range body.Attributes {
		attrs = append(attrs, attr)
	}
	slices.SortFunc(attrs, func(a, b *hclsyntax.Attribute) int {
		return cmp.Compare(a.NameRange.Start.Byte, b.NameRange.Start.Byte)
	})
	return attrs
}

// NoBlocks are the errors for the blocks in a body that takes none. where names it.
func NoBlocks(body *hclsyntax.Body, where string) hcl.Diagnostics {
	var diags hcl.Diagnostics
	for _, inner := range body.Blocks {
		diags = append(diags, diagnostic.Problem(Header(inner), "Unknown block",
			fmt.Sprintf("A block %q is not allowed in %s.", inner.Type, where)))
	}
	return diags
}

// LiteralString evaluates an attribute that must be written out, because it is needed before anything is evaluated.
func LiteralString(attr *hclsyntax.Attribute, diags *hcl.Diagnostics) string {
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

// AttrStep is the name that a traversal has at a position.
func AttrStep(t hcl.Traversal, i int) (string, bool) {
	if i >= len(t) {
		return "", false
	}
	step, ok := t[i].(hcl.TraverseAttr)
	return step.Name, ok
}

// Key takes an index with a literal key off the front of a traversal.
func Key(t hcl.Traversal) (*addr.Key, hcl.Traversal) {
	if len(t) == 0 {
		return nil, t
	}
	index, ok := t[0].(hcl.TraverseIndex)
	if !ok {
		return nil, t
	}
	key, ok := addr.KeyOf(index.Key)
	if !ok {
		return nil, t[1:]
	}
	return &key, t[1:]
}

// Iterator is the name that the content of a dynamic block uses for the current element: its iterator, else its
// label.
func Iterator(block *hclsyntax.Block) string {
	if attr := block.Body.Attributes["iterator"]; attr != nil {
		if name := hcl.ExprAsKeyword(attr.Expr); name != "" {
			return name
		}
	}
	return block.Labels[0]
}
