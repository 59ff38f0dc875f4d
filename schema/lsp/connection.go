package lsp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/sourcegraph/jsonrpc2"
	"go.lsp.dev/protocol"
)

// method is how a message is answered.
type method struct {
	call func(ctx context.Context, s *server, params []byte) (any, error)
}

// request makes a method of a function of the server, with the types of the protocol.
func request[P, R any](f func(*server, context.Context, *P) (R, error)) method {
	return method{func(ctx context.Context, s *server, raw []byte) (any, error) {
		var p P
		if err := protocol.Unmarshal(raw, &p); err != nil {
			return nil, &jsonrpc2.Error{Code: jsonrpc2.CodeInvalidParams, Message: err.Error()}
		}
		result, err := f(s, ctx, &p)
		if err != nil {
			return nil, err
		}
		return encode(result)
	}}
}

// notification makes a method of a function that answers nothing.
func notification[P any](f func(*server, *P)) method {
	return request(func(s *server, _ context.Context, p *P) (any, error) { f(s, p); return nil, nil })
}

// encode writes a message as the protocol demands, whose unions encoding/json does not know.
func encode(message any) (json.RawMessage, error) {
	raw, err := protocol.Marshal(message)
	return raw, err
}

// methods are all that the server answers.
var methods = map[string]method{
	protocol.MethodInitialize:                     request((*server).initialize),
	protocol.MethodTextDocumentDidOpen:            notification((*server).didOpen),
	protocol.MethodTextDocumentDidChange:          notification((*server).didChange),
	protocol.MethodTextDocumentDidClose:           notification((*server).didClose),
	protocol.MethodTextDocumentDidSave:            notification((*server).didSave),
	protocol.MethodWorkspaceDidChangeWatchedFiles: notification((*server).didChangeWatchedFiles),
	protocol.MethodTextDocumentCompletion:         request((*server).completion),
	protocol.MethodTextDocumentHover:              request((*server).hover),
	protocol.MethodTextDocumentDefinition:         request((*server).definition),
	protocol.MethodTextDocumentReferences:         request((*server).references),
	protocol.MethodTextDocumentDocumentHighlight:  request((*server).documentHighlight),
	protocol.MethodTextDocumentPrepareRename:      request((*server).prepareRename),
	protocol.MethodTextDocumentRename:             request((*server).rename),
	protocol.MethodTextDocumentFormatting:         request((*server).formatting),
	protocol.MethodTextDocumentDocumentSymbol:     request((*server).documentSymbol),
	protocol.MethodTextDocumentFoldingRange:       request((*server).foldingRange),
	protocol.MethodTextDocumentSignatureHelp:      request((*server).signatureHelp),
	protocol.MethodWorkspaceSymbol:                request((*server).workspaceSymbol),
	protocol.MethodTextDocumentSemanticTokensFull: request((*server).semanticTokensFull),
	protocol.MethodTextDocumentCodeAction:         request((*server).codeAction),
}

var (
	errModified = &jsonrpc2.Error{Code: int64(protocol.CodeContentModified),
		Message: "the document has changed meanwhile"}
	errCanceled = &jsonrpc2.Error{Code: int64(protocol.CodeRequestCancelled), Message: "cancelled"}
)

// connection hands messages to the server: notifications one after the other as they arrive, requests side by side.
type connection struct {
	server    *server
	connected chan struct{} // closed when the server has its connection

	mu      sync.Mutex
	running map[jsonrpc2.ID]context.CancelFunc
}

func newConnection(s *server) *connection {
	return &connection{server: s, connected: make(chan struct{}), running: map[jsonrpc2.ID]context.CancelFunc{}}
}

// Handle implements jsonrpc2.Handler. It is called with one message at a time.
func (c *connection) Handle(ctx context.Context, conn *jsonrpc2.Conn, req *jsonrpc2.Request) {
	<-c.connected
	if req.Notif {
		if _, err := c.answer(ctx, req); err != nil {
			c.server.opts.Log("%s: %v", req.Method, err)
		}
		return
	}
	s := c.server
	s.mu.Lock()
	ready, now := s.ready, s.now
	s.mu.Unlock()
	if req.Method == protocol.MethodInitialize || req.Method == protocol.MethodShutdown || !ready {
		c.reply(ctx, conn, req) // in order: what follows depends on it
		return
	}
	ctx, cancel := context.WithCancel(context.WithValue(ctx, snapshotKey{}, now))
	c.mu.Lock()
	c.running[req.ID] = cancel
	c.mu.Unlock()
	go func() {
		defer func() {
			cancel()
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.running, req.ID)
		}()
		c.reply(ctx, conn, req)
	}()
}

func (c *connection) reply(ctx context.Context, conn *jsonrpc2.Conn, req *jsonrpc2.Request) {
	result, err := c.answer(ctx, req)
	if ctx.Err() != nil {
		err = errCanceled
	}
	resp := &jsonrpc2.Response{ID: req.ID}
	if err == nil {
		err = resp.SetResult(result)
	}
	if err != nil {
		failed, ok := err.(*jsonrpc2.Error) //nolint:errorlint // it is sent as it is; a wrapped one is another error
		if !ok {
			failed = &jsonrpc2.Error{Code: jsonrpc2.CodeInternalError, Message: err.Error()}
		}
		resp.Error = failed
	}
	if err := conn.SendResponse(ctx, resp); err != nil && !errors.Is(err, jsonrpc2.ErrClosed) {
		c.server.opts.Log("answer %s: %v", req.Method, err)
	}
}

// answer never panics: a mistake of the server is an error of one request.
func (c *connection) answer(ctx context.Context, req *jsonrpc2.Request) (result any, err error) {
	s := c.server
	defer func() {
		if r := recover(); r != nil {
			s.opts.Log("%s: panic: %v\n%s", req.Method, r, debug.Stack())
			err = &jsonrpc2.Error{Code: jsonrpc2.CodeInternalError,
				Message: fmt.Sprintf("%s failed inside the server: %v", req.Method, r)}
		}
	}()
	s.mu.Lock()
	ready, down := s.ready, s.down
	s.mu.Unlock()
	var params []byte
	if req.Params != nil {
		params = *req.Params
	}
	switch {
	case req.Method == protocol.MethodExit:
		s.exit()
		return nil, nil
	case req.Notif && !ready:
		return nil, nil
	case !ready && req.Method != protocol.MethodInitialize:
		return nil, &jsonrpc2.Error{Code: int64(protocol.ErrorCodesServerNotInitialized), Message: "initialize comes first"}
	case down:
		return nil, &jsonrpc2.Error{Code: jsonrpc2.CodeInvalidRequest, Message: "the server is shutting down"}
	case req.Method == protocol.MethodShutdown:
		s.shutdown()
		return nil, nil
	case req.Method == protocol.MethodCancelRequest:
		return nil, c.cancel(params)
	}
	m, known := methods[req.Method]
	switch {
	case known:
		return m.call(ctx, s, params)
	case req.Notif: // $/setTrace and others that may be ignored
		return nil, nil
	}
	return nil, &jsonrpc2.Error{Code: jsonrpc2.CodeMethodNotFound, Message: req.Method + " is not supported"}
}

// cancel ends the request that a $/cancelRequest names, if it still runs.
func (c *connection) cancel(params []byte) error {
	var p struct {
		ID jsonrpc2.ID `json:"id"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if cancel := c.running[p.ID]; cancel != nil {
		cancel()
	}
	return nil
}

// notify sends a message that is not answered.
func (s *server) notify(ctx context.Context, method string, params any) error {
	raw, err := encode(params)
	if err != nil {
		return err
	}
	return s.conn.Notify(ctx, method, raw)
}

// logger passes on what jsonrpc2 would write to standard error.
type logger func(format string, args ...any)

func (l logger) Printf(format string, args ...any) {
	if !strings.Contains(format, "closed") {
		l(strings.TrimSuffix(format, "\n"), args...)
	}
}
