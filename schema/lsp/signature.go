package lsp

import (
	"context"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"go.lsp.dev/protocol"
)

// signatureHelp shows the parameters of the function whose arguments are being written.
func (s *server) signatureHelp(ctx context.Context, p *protocol.SignatureHelpParams) (*protocol.SignatureHelp, error) {
	at, ok := s.placeOf(ctx, p.TextDocumentPositionParams)
	if !ok {
		return nil, nil
	}
	part, ok := at.file.at(at.offset)
	if !ok {
		return nil, nil
	}
	name, argument := callAt(part.src[:at.offset-part.base])
	f, ok := functions()[name]
	if !ok {
		return nil, nil
	}
	info := protocol.SignatureInformation{Label: signature(name, f)}
	if d := f.Description(); d != "" {
		info.Documentation = protocol.String(d)
	}
	for _, param := range parameters(f) {
		info.Parameters = append(info.Parameters, protocol.ParameterInformation{Label: protocol.String(param)})
	}
	if f.VarParam() != nil {
		argument = min(argument, len(info.Parameters)-1)
	}
	return &protocol.SignatureHelp{Signatures: []protocol.SignatureInformation{info},
		ActiveParameter: protocol.NewNullable(uint32(argument))}, nil
}

// callAt is the innermost function call that a text leaves open, and the number of the argument at its end.
func callAt(src string) (name string, argument int) {
	type open struct {
		call     string // empty: another bracket
		argument int
	}
	var stack []open
	before := token{}
	for _, t := range tokensOf(src) {
		switch t.kind {
		case hclsyntax.TokenOParen:
			call := ""
			if before.kind == hclsyntax.TokenIdent {
				call = before.text
			}
			stack = append(stack, open{call: call})
		case hclsyntax.TokenOBrack, hclsyntax.TokenOBrace, hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
			stack = append(stack, open{})
		case hclsyntax.TokenCParen, hclsyntax.TokenCBrack, hclsyntax.TokenCBrace, hclsyntax.TokenTemplateSeqEnd:
			stack = stack[:max(0, len(stack)-1)]
		case hclsyntax.TokenComma:
			if len(stack) > 0 {
				stack[len(stack)-1].argument++
			}
		}
		before = t
	}
	for i := len(stack) - 1; i >= 0; i-- {
		if stack[i].call != "" {
			return stack[i].call, stack[i].argument
		}
	}
	return "", 0
}
