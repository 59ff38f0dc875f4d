package parse

import (
	"fmt"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/budget"
)

// Constant is the value of an expression without names, with the limits of a recipe's expressions.
func Constant(path string, src []byte) (cty.Value, error) {
	expr, diags := Expression(path, src)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	if diags := budget.New().Guard(expr); diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	v, diags := expr.Value(nil)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	if d, _ := budget.Implausible(v, expr.Range()); d != nil {
		return cty.DynamicVal, fmt.Errorf("%s: %s", d.Summary, d.Detail)
	}
	return v, nil
}
