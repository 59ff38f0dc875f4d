package lsp

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/sourcegraph/jsonrpc2"
	"go.lsp.dev/protocol"
	"go.lsp.dev/uri"

	"github.com/recipe-rl/recipe/schema/parse"
)

// check publishes diagnostics after changes, one round at a time: what is typed during a round is part of the next.
func (s *server) check(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		}
		s.mu.Lock()
		now := s.now
		s.mu.Unlock()
		s.publish(ctx, view{now, s.project})
	}
}

// publish tells the editor what is wrong in the files that are open and in the recipes that they are part of. When a
// newer version has arrived meanwhile, the round that follows tells it.
func (s *server) publish(ctx context.Context, v view) {
	found := v.diagnose()
	s.mu.Lock()
	outdated := s.now != v.snapshot
	var messages []*protocol.PublishDiagnosticsParams
	if !outdated {
		messages = s.differences(v, found)
	}
	s.mu.Unlock()
	for _, m := range messages {
		if err := s.notify(ctx, protocol.MethodTextDocumentPublishDiagnostics, m); err != nil {
			if !errors.Is(err, jsonrpc2.ErrClosed) {
				s.opts.Log("publish diagnostics: %v", err)
			}
			return
		}
	}
}

// differences are the messages about files of which something else is to be said than before.
func (s *server) differences(v view, found map[string][]protocol.Diagnostic) []*protocol.PublishDiagnosticsParams {
	var messages []*protocol.PublishDiagnosticsParams
	said := map[uri.URI]bool{}
	for path, diagnostics := range found {
		m := &protocol.PublishDiagnosticsParams{URI: v.uriOf(path), Diagnostics: diagnostics}
		if d := v.documents[path]; d != nil {
			m.Version = protocol.NewOptional(d.version)
		}
		said[m.URI] = true
		text, err := protocol.Marshal(m)
		if err != nil {
			s.opts.Log("write diagnostics of %s: %v", path, err)
			continue
		}
		if before,
			known := s.published[m.URI]; before != string(text) && (known || len(diagnostics) > 0 || v.documents[path] != nil) {
			s.published[m.URI] = string(text)
			messages = append(messages, m)
		}
	}
	for u := range s.published {
		if !said[u] {
			delete(s.published, u)
			messages = append(messages, &protocol.PublishDiagnosticsParams{URI: u, Diagnostics: []protocol.Diagnostic{}})
		}
	}
	return messages
}

// diagnose returns the diagnostics of each file. Every open file is in the result.
func (v view) diagnose() map[string][]protocol.Diagnostic {
	out := map[string][]protocol.Diagnostic{}
	roots, calls := map[string]bool{}, v.callers(v.snapshot)
	for path, d := range v.documents {
		out[path] = []protocol.Diagnostic{}
		if !parse.IsRecipeFile(filepath.Base(path)) {
			_, diags := parse.File(path, []byte(d.text.src))
			v.place(out, path, diags)
			continue
		}
		for _, root := range v.rootsOf(path, calls) {
			roots[root] = true
		}
	}
	for root := range roots {
		v.place(out, root, v.analyze(v.snapshot, root).diagnostics)
	}
	return out
}

// place adds the diagnostics of a recipe to those of its files. One without a place in a file, such as a variable that
// is given and not declared, is shown at the start of the recipe.
func (v view) place(out map[string][]protocol.Diagnostic, root string, diags hcl.Diagnostics) {
	for _, d := range diags {
		path, at := root, span{}
		if d.Subject != nil && !strings.HasPrefix(d.Subject.Filename, "<") {
			if absolute, err := filepath.Abs(d.Subject.Filename); err == nil && filepath.IsAbs(root) {
				path = absolute
			}
			at = span{d.Subject.Start.Byte, d.Subject.End.Byte}
		}
		f := v.file(v.snapshot, path)
		if f == nil {
			path, f, at = root, v.file(v.snapshot, root), span{}
		}
		if f == nil {
			continue
		}
		item := protocol.Diagnostic{Range: f.text.rangeOf(at), Severity: protocol.DiagnosticSeverityError,
			Source: protocol.NewOptional("recipe"), Message: protocol.String(message(d, filepath.Dir(root)))}
		if d.Severity == hcl.DiagWarning {
			item.Severity = protocol.DiagnosticSeverityWarning
		}
		if strings.HasPrefix(d.Summary, "Deprecated") {
			item.Tags = protocol.NewDiagnosticTags(protocol.DiagnosticTagDeprecated)
		}
		if !slices.ContainsFunc(out[path], func(other protocol.Diagnostic) bool {
			return other.Range == item.Range && other.Message == item.Message
		}) {
			out[path] = append(out[path], item)
		}
	}
}

// message is the text of a diagnostic as validate shows it in the folder of the recipe.
func message(d *hcl.Diagnostic, dir string) string {
	return strings.ReplaceAll(d.Summary+"\n"+d.Detail, dir+string(filepath.Separator), "")
}
