// Package parse reads the files of recipes: from bytes to the blocks that they declare, before anything is evaluated.
// It is for files of strangers, too: what could exhaust the parser is counted before the parser sees it.
package parse

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/recipe-rl/recipe/schema/diagnostic"
)

// MaxMistakes is how many mistakes the parser reports of a file.
const MaxMistakes = 200

// File parses a file of HCL with the limits of a recipe's files. Use it wherever a file may come from someone
// else: the parser alone overflows the stack, or takes gigabytes and minutes, for a few hundred kilobytes. The file has
// a body in any case.
func File(path string, src []byte) (*hcl.File, hcl.Diagnostics) {
	if d := Unreadable(path, src); d != nil {
		return &hcl.File{Body: &hclsyntax.Body{}, Bytes: src}, hcl.Diagnostics{d}
	}
	file, diags := hclsyntax.ParseConfig(src, path, hcl.InitialPos)
	return file, diagnostic.Few(diags, MaxMistakes)
}

// Readable reports whether File would parse a text, be it with or without errors.
func Readable(src []byte) bool { return TooLarge("", src) == nil }

// Expression is File for an expression; nil after an error.
func Expression(path string, src []byte) (hclsyntax.Expression, hcl.Diagnostics) {
	if d := Unreadable(path, src); d != nil {
		return nil, hcl.Diagnostics{d}
	}
	return hclsyntax.ParseExpression(src, path, hcl.InitialPos)
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
