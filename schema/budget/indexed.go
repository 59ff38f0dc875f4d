package budget

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// indexed is the collection of an index expression. hcl drops the marks of the key when the collection is an object, so
// that what a sensitive key has chosen would not be sensitive: the collection gets them (docs/decisions.md).
type indexed struct {
	*hclsyntax.ParenthesesExpr
	index *hclsyntax.IndexExpr
}

// Value is the collection, with the marks of the key where it is an object.
func (x *indexed) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	v, diags := x.Expression.Value(ctx)
	if diags.HasErrors() || !v.Type().IsObjectType() && v.Type() != cty.DynamicPseudoType {
		return v, diags
	}
	key, keyDiags := x.index.Key.Value(ctx)
	if keyDiags.HasErrors() { // reported when the key itself is evaluated
		return v, diags
	}
	return v.WithSameMarks(key), diags
}
