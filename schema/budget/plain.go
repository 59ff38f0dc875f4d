package budget

import "github.com/hashicorp/hcl/v2/hclsyntax"

// IsLiteral is the fast path for the most common expressions, which name nothing.
func IsLiteral(expr hclsyntax.Expression) bool {
	switch e := expr.(type) {
	case *hclsyntax.LiteralValueExpr:
		return true
	case *hclsyntax.TemplateExpr:
		return e.IsStringLiteral()
	}
	return false
}

// Unwrap is an expression without the parentheses and the guards of operands around it.
func Unwrap(expr hclsyntax.Expression) hclsyntax.Expression {
	for {
		switch e := expr.(type) {
		case *hclsyntax.ParenthesesExpr:
			expr = e.Expression
		case *operand:
			expr = e.Expression
		default:
			return expr
		}
	}
}

// Plain undoes guard for code that looks at the shape of an expression.
func Plain(e hclsyntax.Expression) hclsyntax.Expression {
	switch g := e.(type) {
	case guarded:
		return g.Expression
	case *operand:
		return g.Expression
	case *indexed:
		return g.Expression
	}
	return e
}
