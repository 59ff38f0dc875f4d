package lsp

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/sourcegraph/jsonrpc2"
	"go.lsp.dev/protocol"
	"go.lsp.dev/uri"

	"github.com/recipe-rl/recipe/schema/parse"
)

// place is where a request points to.
type place struct {
	view
	path   string
	file   *file
	offset int
}

// placeOf is not ok for a document that the server does not know.
func (s *server) placeOf(ctx context.Context, p protocol.TextDocumentPositionParams) (place, bool) {
	v := s.view(ctx)
	path := pathOf(p.TextDocument.URI)
	f := v.file(v.snapshot, path)
	if f == nil {
		return place{}, false
	}
	return place{v, path, f, f.text.offset(p.Position)}, true
}

func (v view) location(path string, at span) protocol.Location {
	l := protocol.Location{URI: v.uriOf(path)}
	if f := v.file(v.snapshot, path); f != nil {
		l.Range = f.text.rangeOf(at)
	}
	return l
}

func (s *server) definition(ctx context.Context, p *protocol.DefinitionParams) (protocol.DefinitionResult, error) {
	at, ok := s.placeOf(ctx, p.TextDocumentPositionParams)
	if !ok {
		return protocol.LocationSlice{}, nil
	}
	if f, ok := at.symbolAt(at.path, at.offset); ok {
		var out protocol.LocationSlice
		for _, o := range at.occurrences(f.symbol) {
			if o.declares {
				out = append(out, at.location(o.path, o.at))
			}
		}
		return out, nil
	}
	for _, c := range at.moduleCalls(at.file, at.path) {
		if c.source.holds(at.offset) && c.target != "" {
			return protocol.LocationSlice{at.location(c.target, span{})}, nil
		}
	}
	if l, ok := at.memberDefinition(); ok {
		return protocol.LocationSlice{l}, nil
	}
	return protocol.LocationSlice{}, nil
}

// memberDefinition is where the block of a reference sets the attribute that the reference reads; an output has no such
// place.
func (at place) memberDefinition() (protocol.Location, bool) {
	r, base := at.reference()
	if r == nil {
		return protocol.Location{}, false
	}
	c, name, _ := r.name()
	member, i := r.member()
	if c != instance || i == 0 || !r.steps[i].at.holds(at.offset-base) {
		return protocol.Location{}, false
	}
	p, b := at.file.blockNamed(symbol{at.path, instance, name})
	if b == nil {
		return protocol.Location{}, false
	}
	if a := b.attribute(member); a != nil {
		return at.location(at.path, a.nameAt.shift(p.base)), true
	}
	return protocol.Location{}, false
}

// reference is the reference that the offset is in, and the base of its part.
func (at place) reference() (found *reference, base int) {
	p, ok := at.file.at(at.offset)
	if !ok {
		return nil, 0
	}
	p.references(func(r *reference) {
		if r.at.holds(at.offset - p.base) {
			found = r
		}
	})
	return found, p.base
}

func (s *server) references(ctx context.Context, p *protocol.ReferenceParams) ([]protocol.Location, error) {
	at, ok := s.placeOf(ctx, p.TextDocumentPositionParams)
	if !ok {
		return nil, nil
	}
	f, ok := at.symbolAt(at.path, at.offset)
	if !ok {
		return nil, nil
	}
	var out []protocol.Location
	for _, o := range at.occurrences(f.symbol) {
		if !o.declares || p.Context.IncludeDeclaration {
			out = append(out, at.location(o.path, o.at))
		}
	}
	return out, nil
}

func (s *server) documentHighlight(ctx context.Context,
	p *protocol.DocumentHighlightParams) ([]protocol.DocumentHighlight, error) {
	at, ok := s.placeOf(ctx, p.TextDocumentPositionParams)
	if !ok {
		return nil, nil
	}
	f, ok := at.symbolAt(at.path, at.offset)
	if !ok {
		return nil, nil
	}
	var out []protocol.DocumentHighlight
	for _, o := range at.occurrences(f.symbol) {
		if o.path == at.path {
			out = append(out, protocol.DocumentHighlight{Range: at.file.text.rangeOf(o.at)})
		}
	}
	return out, nil
}

func (s *server) prepareRename(ctx context.Context, p *protocol.PrepareRenameParams) (protocol.PrepareRenameResult,
	error) {
	at, ok := s.placeOf(ctx, p.TextDocumentPositionParams)
	if !ok {
		return nil, nil
	}
	f, _, err := at.renamed()
	if err != nil {
		return nil, err
	}
	r := at.file.text.rangeOf(f.at)
	return &protocol.PrepareRenamePlaceholder{Range: r, Placeholder: f.at.of(at.file.text.src)}, nil
}

func (s *server) rename(ctx context.Context, p *protocol.RenameParams) (*protocol.WorkspaceEdit, error) {
	at, ok := s.placeOf(ctx, p.TextDocumentPositionParams)
	if !ok {
		return nil, nil
	}
	f, places, err := at.renamed()
	if err != nil {
		return nil, err
	}
	if err := at.free(f.symbol, p.NewName); err != nil {
		return nil, err
	}
	edits := map[string][]protocol.TextEdit{}
	for _, o := range places {
		edits[o.path] = append(edits[o.path],
			protocol.TextEdit{Range: at.location(o.path, o.at).Range, NewText: p.NewName})
	}
	for path := range edits {
		if !s.current(at.view, path) {
			return nil, errModified
		}
	}
	return s.workspaceEdit(at.view, edits), nil
}

func refused(format string, args ...any) error {
	return &jsonrpc2.Error{Code: int64(protocol.LSPErrorCodesRequestFailed), Message: fmt.Sprintf(format, args...)}
}

// renamed returns the symbol at the place, and where it is named, or why it cannot be renamed.
func (at place) renamed() (found, []occurrence, error) {
	f, ok := at.symbolAt(at.path, at.offset)
	if !ok {
		return f, nil, refused("Only the names of blocks, variables, local values, outputs and modules can be renamed.")
	}
	places := at.occurrences(f.symbol)
	if !slices.ContainsFunc(places, func(o occurrence) bool { return o.declares }) {
		return f, nil, refused("%s is not declared in %s.", f.symbol.name, f.symbol.path)
	}
	looked := map[string]bool{}
	for _, o := range places {
		if looked[o.path] {
			continue
		}
		looked[o.path] = true
		if at.inPackage(o.path) {
			return f, nil, refused("%s is of a module from a package, which is not changed here.", f.symbol.name)
		}
		src := at.view.file(at.snapshot, o.path).text.src
		if _, diags := parse.File(o.path, []byte(src)); diags.HasErrors() {
			return f, nil, refused("%s has syntax errors, which could hide uses of the name. Mend them first.", o.path)
		}
	}
	return f, places, nil
}

// free explains why a symbol cannot get a name.
func (at place) free(s symbol, name string) error {
	if !hclsyntax.ValidIdentifier(name) {
		return refused("%q cannot be used in a reference. A name is letters, digits, _ and -, and starts with a letter.",
			name)
	}
	if s.class == variable && slices.Contains(moduleOwn, name) {
		return refused("A variable cannot be named %q: that is an argument of every module block.", name)
	}
	other := s
	other.name = name
	if s.class == instance {
		other.name = s.name[:strings.LastIndexByte(s.name, '.')+1] + name
	}
	for _, known := range at.view.file(at.snapshot, s.path).declarations(s.path, s.class) {
		if known == other && known != s {
			return refused("There is already %s in %s.", describe(other), s.path)
		}
	}
	return nil
}

// describe names a symbol as a reference does.
func describe(s symbol) string {
	if s.class == instance {
		return s.name
	}
	return fmt.Sprintf("%s.%s", s.class, s.name)
}

// workspaceEdit carries the versions that the edits are for, if the editor checks them.
func (s *server) workspaceEdit(v view, edits map[string][]protocol.TextEdit) *protocol.WorkspaceEdit {
	out := &protocol.WorkspaceEdit{}
	s.mu.Lock()
	versioned := s.versioned
	s.mu.Unlock()
	if !versioned {
		out.Changes = map[uri.URI][]protocol.TextEdit{}
	}
	for path, list := range edits {
		u := v.uriOf(path)
		if !versioned {
			out.Changes[u] = list
			continue
		}
		e := &protocol.TextDocumentEdit{}
		e.TextDocument.URI = u
		if d := v.documents[path]; d != nil {
			e.TextDocument.Version = &d.version
		}
		for i := range list {
			e.Edits = append(e.Edits, &list[i])
		}
		out.DocumentChanges = append(out.DocumentChanges, e)
	}
	return out
}
