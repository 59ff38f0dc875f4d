// Package lsp is the language server of recipes: it tells editors over the Language Server Protocol what the language
// knows. docs/editor.md says how to use it.
package lsp

import (
	"context"
	"errors"
	"io"
	"maps"
	"path/filepath"
	"sync"

	"github.com/sourcegraph/jsonrpc2"
	"go.lsp.dev/protocol"
	"go.lsp.dev/uri"

	"github.com/recipe-rl/recipe/schema"
)

// Options are what a server needs besides the editor.
type Options struct {
	Language schema.Options // variables and environment, as for validate; Plugins and ReadFile are set by the server
	// Plugins opens a catalog of plugins: one for each recipe, and again when a recipe requires other plugins
	Plugins func() (schema.Plugins, error)
	Version string                           // of this program
	Log     func(format string, args ...any) // for mistakes of the server itself; nil: nothing is logged
}

// server answers one editor. Requests run side by side, each on the documents as they were when it arrived.
type server struct {
	opts    Options
	project *project
	conn    *jsonrpc2.Conn
	changed chan struct{} // a document has changed: diagnostics are out of date
	exited  chan struct{}

	mu        sync.Mutex
	now       *snapshot
	ready     bool // initialize was answered
	down      bool // shutdown was answered
	versioned bool // the editor takes edits with versions
	snippets  bool
	published map[uri.URI]string // what was last said of each file
}

// ErrNoShutdown means that the editor left without asking the server to shut down.
var ErrNoShutdown = errors.New("the editor has gone without a shutdown request")

// Serve answers the editor at the other end of a connection, until it says exit or closes the connection.
func Serve(ctx context.Context, conn io.ReadWriteCloser, opts Options) error {
	if opts.Log == nil {
		opts.Log = func(string, ...any) {}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s := &server{opts: opts, project: newProject(opts), changed: make(chan struct{}, 1), exited: make(chan struct{}),
		now: &snapshot{documents: map[string]*document{}}, published: map[uri.URI]string{}}
	c := newConnection(s)
	s.conn = jsonrpc2.NewConn(ctx, jsonrpc2.NewBufferedStream(conn, jsonrpc2.VSCodeObjectCodec{}), c,
		jsonrpc2.SetLogger(logger(opts.Log)))
	// Else its reader would report, after this, that the other end has closed the connection.
	defer func() { _ = s.conn.Close() }()
	var checking sync.WaitGroup
	checking.Go(func() { s.check(ctx) })
	defer checking.Wait()
	defer stop()
	close(c.connected)
	select {
	case <-s.conn.DisconnectNotify():
	case <-s.exited:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.down && ctx.Err() == nil {
		return ErrNoShutdown
	}
	return nil
}

type snapshotKey struct{}

// view is what a request works on.
type view struct {
	*snapshot
	*project
}

func (s *server) view(ctx context.Context) view {
	now, ok := ctx.Value(snapshotKey{}).(*snapshot)
	if !ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		now = s.now
	}
	return view{now, s.project}
}

// current reports whether a file still is as a request saw it; an edit of another version would damage it.
func (s *server) current(v view, path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now.documents[path] == v.documents[path]
}

func (s *server) initialize(_ context.Context, p *protocol.InitializeParams) (*protocol.InitializeResult, error) {
	var folders []string
	if open, ok := p.WorkspaceFolders.Get(); ok {
		for _, f := range open {
			folders = append(folders, f.URI.FsPath())
		}
	}
	if len(folders) == 0 && p.RootURI != nil { //nolint:staticcheck // all that older editors say
		folders = append(folders, p.RootURI.FsPath()) //nolint:staticcheck // see above
	}
	s.project.mu.Lock()
	s.project.folders = folders
	s.project.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = true
	s.versioned, s.snippets = takesVersions(&p.Capabilities), takesSnippets(&p.Capabilities)
	return &protocol.InitializeResult{Capabilities: capabilities(),
		ServerInfo: protocol.ServerInfo{Name: "recipe", Version: protocol.NewOptional(s.opts.Version)}}, nil
}

func (s *server) shutdown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = true
}

// exit is called by one message at a time.
func (s *server) exit() {
	select {
	case <-s.exited:
	default:
		close(s.exited)
	}
}

// update makes the next snapshot and has the diagnostics computed again.
func (s *server) update(change func(next *snapshot)) {
	s.mu.Lock()
	next := &snapshot{documents: maps.Clone(s.now.documents), disk: s.now.disk}
	change(next)
	s.now = next
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// pathOf is the file that a URI names. A document that is not a file, such as a new one, has its URI for a path.
func pathOf(u uri.URI) string {
	if u.Scheme() != "file" {
		return string(u)
	}
	return filepath.Clean(u.FsPath())
}

func (s *snapshot) uriOf(path string) uri.URI {
	if d := s.documents[path]; d != nil {
		return d.uri
	}
	return uri.File(path)
}

func (s *server) didOpen(p *protocol.DidOpenTextDocumentParams) {
	d := &document{uri: p.TextDocument.URI, path: pathOf(p.TextDocument.URI), version: p.TextDocument.Version,
		text: newText(p.TextDocument.Text)}
	s.update(func(next *snapshot) { next.documents[d.path] = d })
}

// didChange applies edits. A version that is not newer than the known one is out of date.
func (s *server) didChange(p *protocol.DidChangeTextDocumentParams) {
	path := pathOf(p.TextDocument.URI)
	s.update(func(next *snapshot) {
		d := next.documents[path]
		if d == nil || p.TextDocument.Version <= d.version {
			return
		}
		t := d.text
		for _, change := range p.ContentChanges {
			switch c := change.(type) {
			case *protocol.TextDocumentContentChangePartial:
				t = t.replace(t.span(c.Range), c.Text)
			case *protocol.TextDocumentContentChangeWholeDocument:
				t = newText(c.Text)
			}
		}
		next.documents[path] = &document{uri: d.uri, path: path, version: p.TextDocument.Version, text: t}
	})
}

func (s *server) didClose(p *protocol.DidCloseTextDocumentParams) {
	s.update(func(next *snapshot) { delete(next.documents, pathOf(p.TextDocument.URI)); next.disk++ })
}

// didSave takes note that what else a recipe reads, such as the file of a loss, may have changed.
func (s *server) didSave(*protocol.DidSaveTextDocumentParams) {
	s.update(func(next *snapshot) { next.disk++ })
}

func (s *server) didChangeWatchedFiles(*protocol.DidChangeWatchedFilesParams) {
	s.update(func(next *snapshot) { next.disk++ })
}
