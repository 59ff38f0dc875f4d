package schema

import (
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/diagnostic"
)

// maxMistakes is how many mistakes the parser reports of a file.
const maxMistakes = 200

// ParseFile parses a file of HCL with the limits of a recipe's files. Use it wherever a file may come from someone
// else: the parser alone overflows the stack, or takes gigabytes and minutes, for a few hundred kilobytes. The file has
// a body in any case.
func ParseFile(path string, src []byte) (*hcl.File, hcl.Diagnostics) {
	if d := unreadable(path, src); d != nil {
		return &hcl.File{Body: &hclsyntax.Body{}, Bytes: src}, hcl.Diagnostics{d}
	}
	file, diags := hclsyntax.ParseConfig(src, path, hcl.InitialPos)
	return file, diagnostic.Few(diags, maxMistakes)
}

// Readable says whether ParseFile would parse a text, be it with or without errors.
func Readable(src []byte) bool { return tooLarge("", src) == nil }

// ParseExpression is ParseFile for an expression; nil after an error.
func ParseExpression(path string, src []byte) (hclsyntax.Expression, hcl.Diagnostics) {
	if d := unreadable(path, src); d != nil {
		return nil, hcl.Diagnostics{d}
	}
	return hclsyntax.ParseExpression(src, path, hcl.InitialPos)
}

// Constant is the value of an expression without names, with the limits of a recipe's expressions.
func Constant(path string, src []byte) (cty.Value, error) {
	expr, diags := ParseExpression(path, src)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	b := &budget{}
	b.refill()
	if diags := b.guard(expr); diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	v, diags := expr.Value(nil)
	if diags.HasErrors() {
		return cty.DynamicVal, diags
	}
	if d, _ := implausible(v, expr.Range()); d != nil {
		return cty.DynamicVal, fmt.Errorf("%s: %s", d.Summary, d.Detail)
	}
	return v, nil
}

// Unfinished says whether an expression goes on in the next line: a bracket, a heredoc or an interpolation is open.
func Unfinished(src []byte) bool {
	if !Readable(src) {
		return false
	}
	tokens, _ := hclsyntax.LexExpression(src, "", hcl.InitialPos)
	open := 0
	for _, t := range tokens {
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenOHeredoc,
			hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
			open++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenCHeredoc,
			hclsyntax.TokenTemplateSeqEnd:
			open--
		}
	}
	return open > 0
}
