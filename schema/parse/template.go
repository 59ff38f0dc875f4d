package parse

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/recipe-rl/recipe/schema/budget"
)

// Template returns a function that parses a template file with the same limits as a recipe.
func Template(b *budget.Budget) func(path string, src []byte) (hclsyntax.Expression, error) {
	return func(path string, src []byte) (hclsyntax.Expression, error) {
		if d := Unreadable(path, src); d != nil {
			return nil, hcl.Diagnostics{d}
		}
		expr, diags := hclsyntax.ParseTemplate(src, path, hcl.InitialPos)
		if diags.HasErrors() {
			return nil, diags
		}
		if diags := b.Guard(expr); diags.HasErrors() {
			return nil, diags
		}
		return expr, nil
	}
}
