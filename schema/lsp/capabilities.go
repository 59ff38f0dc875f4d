package lsp

import "go.lsp.dev/protocol"

func capabilities() protocol.ServerCapabilities {
	yes, incremental := true, protocol.TextDocumentSyncKindIncremental
	return protocol.ServerCapabilities{
		PositionEncoding: protocol.PositionEncodingKindUTF16,
		TextDocumentSync: &protocol.TextDocumentSyncOptions{OpenClose: &yes, Change: &incremental,
			Save: protocol.Boolean(true)},
		CompletionProvider:         &protocol.CompletionOptions{TriggerCharacters: []string{".", `"`, "=", " "}},
		HoverProvider:              protocol.Boolean(true),
		DefinitionProvider:         protocol.Boolean(true),
		ReferencesProvider:         protocol.Boolean(true),
		DocumentHighlightProvider:  protocol.Boolean(true),
		DocumentSymbolProvider:     protocol.Boolean(true),
		DocumentFormattingProvider: protocol.Boolean(true),
		WorkspaceSymbolProvider:    protocol.Boolean(true),
		FoldingRangeProvider:       protocol.Boolean(true),
		SignatureHelpProvider:      &protocol.SignatureHelpOptions{TriggerCharacters: []string{"(", ","}},
		RenameProvider:             &protocol.RenameOptions{PrepareProvider: &yes},
		CodeActionProvider: &protocol.CodeActionOptions{
			CodeActionKinds: []protocol.CodeActionKind{protocol.CodeActionKindQuickFix}},
		SemanticTokensProvider: &protocol.SemanticTokensOptions{Full: protocol.Boolean(true),
			Legend: protocol.SemanticTokensLegend{TokenTypes: tokenTypes, TokenModifiers: []string{"declaration"}}},
	}
}

// takesVersions reports whether the editor checks the version of a document before it applies an edit.
func takesVersions(c *protocol.ClientCapabilities) bool {
	w := c.Workspace
	return w != nil && w.WorkspaceEdit != nil && w.WorkspaceEdit.DocumentChanges != nil && *w.WorkspaceEdit.DocumentChanges
}

func takesSnippets(c *protocol.ClientCapabilities) bool {
	t := c.TextDocument
	return t != nil && t.Completion != nil && t.Completion.CompletionItem != nil &&
		t.Completion.CompletionItem.SnippetSupport != nil && *t.Completion.CompletionItem.SnippetSupport
}
