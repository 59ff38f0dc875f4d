package worker

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/sourcegraph/jsonrpc2"

	"github.com/recipe-rl/recipe/internal/disk"
	"github.com/recipe-rl/recipe/internal/openfiles"
	owner "github.com/recipe-rl/recipe/internal/peer"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/proc"
)

// protocolVersion is that of docs/trainer-protocol.md.
const protocolVersion = 2

// problem is the form of the worker's errors, in answers and in events.
type problem struct {
	Code    string   `json:"code"`
	Message string   `json:"message"`
	Checks  []string `json:"checks"`
	Setting string   `json:"setting"` // that it is about, by its name in the program's configuration; empty: none
}

// asError turns it into what a user reads: what went wrong, and things to look at, numbered if there are several.
func (p problem) asError(doing string) *sdk.Error {
	var remedy strings.Builder
	for i, check := range p.Checks {
		if i > 0 {
			remedy.WriteString("\n")
		}
		if len(p.Checks) > 1 {
			fmt.Fprintf(&remedy, "%d. ", i+1)
		}
		remedy.WriteString(check)
	}
	if p.Code == "disk_full" {
		return &sdk.Error{Summary: doing, Remedy: remedy.String(), Err: disk.NoRoom(p.Message)}
	}
	return &sdk.Error{Summary: doing + ": " + p.Message, Detail: "code " + p.Code, Remedy: remedy.String()}
}

// errGone reports that the worker is not connected, or has broken the connection off.
var errGone = errors.New("the trainer's worker is not running")

// message is what comes from the worker, in its order: an event, or a request that the supervisor answers with reply.
type message struct {
	event event
	ask   string // "sync", "turn" or "prepared"; empty: an event
	step  int64
	ahead bool // it goes on when its weights have been taken, and waits before it changes them
	// beside says of "prepared" that the worker can go on on the device, once inference beside it has taken its memory
	beside bool
	reply  func(result any, err error)
}

// link is the connection with the worker: JSON-RPC 2.0, one message a line, over loopback. The worker connects and says
// hello with the token of its configuration; both sides may send requests. Rank 0 of a trainer over several GPUs
// carries out commands, any rank may send events: memory that only its own device lacks is known to nobody else.
type link struct {
	listener net.Listener
	token    string
	inbox    chan message
	ctx      context.Context
	cancel   context.CancelFunc
	serving  sync.WaitGroup

	mu    sync.Mutex
	main  *jsonrpc2.Conn // of rank 0; nil until it has said hello
	conns []*jsonrpc2.Conn
}

func listen(ctx context.Context, token string) (*link, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the trainer's worker: %w", err)
	}
	l := &link{listener: listener, token: token, inbox: make(chan message, 256)}
	// The worker still sends events while it ends: its last checkpoint must be recorded.
	l.ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	l.serving.Go(l.accept)
	return l, nil
}

func (l *link) address() string { return l.listener.Addr().String() }

func (l *link) accept() {
	listener := openfiles.Wait(l.listener, nil)
	for {
		conn, err := listener.Accept()
		if err != nil {
			return // closed
		}
		if owner.Check(conn) != nil { // a process of another user is no worker of this trainer
			_ = conn.Close()
			continue
		}
		p := &peer{link: l}
		rpc := jsonrpc2.NewConn(l.ctx, jsonrpc2.NewPlainObjectStream(conn), p, jsonrpc2.SetLogger(quiet{}))
		time.AfterFunc(helloTimeout, func() {
			if !p.known() {
				_ = rpc.Close()
			}
		})
		l.mu.Lock()
		l.conns = append(l.conns, rpc)
		l.mu.Unlock()
	}
}

// helloTimeout bounds how long a connection may stay without a token.
const helloTimeout = 10 * time.Second

// quiet drops what jsonrpc2 would write to standard error, such as that a connection was closed.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

// ended is closed when the program has ended and everything that it said is in the inbox.
func (l *link) ended(program *proc.Program) <-chan struct{} {
	ended := make(chan struct{})
	go func() { <-program.Done(); l.drain(); close(ended) }()
	return ended
}

// connected reports whether rank 0 has said hello.
func (l *link) connected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.main != nil
}

// call asks the worker. It takes requests between two training steps, so an answer may take as long as one.
func (l *link) call(ctx context.Context, method string, params, result any) error {
	l.mu.Lock()
	conn := l.main
	l.mu.Unlock()
	if conn == nil {
		return errGone
	}
	err := conn.Call(ctx, method, params, result)
	var refused *jsonrpc2.Error
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case errors.As(err, &refused):
		p := problem{Code: fmt.Sprint(refused.Code), Message: refused.Message}
		if refused.Data != nil {
			_ = json.Unmarshal(*refused.Data, &p) // the message alone says something, too
		}
		return p.asError("the worker refused " + method)
	case errors.Is(err, jsonrpc2.ErrClosed), proc.BrokenOff(err):
		return fmt.Errorf("ask the worker for %s: %w", method, errGone)
	}
	return fmt.Errorf("ask the worker for %s: %w", method, err)
}

// drain waits until the worker, whose process has ended, has said all that it had to say.
func (l *link) drain() {
	l.mu.Lock()
	conns := l.conns
	l.mu.Unlock()
	deadline := time.NewTimer(drainTimeout) // something that the worker has started may hold its socket
	defer deadline.Stop()
	for _, c := range conns {
		select {
		case <-c.DisconnectNotify():
		case <-deadline.C:
			return
		}
	}
}

const drainTimeout = 5 * time.Second

// close ends all connections and waits for their goroutines.
func (l *link) close() {
	_ = l.listener.Close()
	l.serving.Wait()
	l.cancel()
	l.mu.Lock()
	conns := l.conns
	l.main = nil
	l.mu.Unlock()
	for _, c := range conns {
		<-c.DisconnectNotify()
	}
}

// peer is one process of the worker.
type peer struct {
	link *link

	mu    sync.Mutex
	hello bool
}

func (p *peer) known() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hello
}

// Handle takes the messages of one process in their order.
func (p *peer) Handle(ctx context.Context, conn *jsonrpc2.Conn, r *jsonrpc2.Request) {
	if r.Method == "hello" {
		p.greet(ctx, conn, r)
		return
	}
	if !p.known() {
		_ = conn.Close()
		return
	}
	m := message{}
	var err error
	switch r.Method {
	case "event":
		err = decode(r, &m.event)
		if err != nil { // an event of this form would be lost silently
			m.event, err = event{Type: "warning", problem: problem{Message: fmt.Sprintf("the worker wrote an event that "+
				"cannot be read: %v", err)}}, nil
		}
	case "sync", "turn", "prepared":
		var body struct {
			Step   int64 `json:"step"`
			Ahead  bool  `json:"ahead"`
			Beside bool  `json:"beside"`
		}
		err = decode(r, &body)
		m.ask, m.step, m.ahead, m.beside = r.Method, body.Step, body.Ahead, body.Beside
		m.reply = func(result any, err error) { answer(p.link.ctx, conn, r.ID, result, err) }
	default:
		err = &jsonrpc2.Error{Code: jsonrpc2.CodeMethodNotFound, Message: "no such method: " + r.Method}
	}
	if err != nil {
		answer(ctx, conn, r.ID, nil, err)
		return
	}
	select {
	case p.link.inbox <- m:
	case <-ctx.Done():
	}
}

func (p *peer) greet(ctx context.Context, conn *jsonrpc2.Conn, r *jsonrpc2.Request) {
	var body struct {
		Token    string `json:"token"`
		Protocol int    `json:"protocol"`
		Rank     int    `json:"rank"`
	}
	switch err := decode(r, &body); {
	case err != nil:
		answer(ctx, conn, r.ID, nil, err)
	case subtle.ConstantTimeCompare([]byte(body.Token), []byte(p.link.token)) != 1:
		answer(ctx, conn, r.ID, nil, errors.New("the token is wrong"))
		_ = conn.Close()
	case body.Protocol != protocolVersion:
		answer(ctx, conn, r.ID, nil, fmt.Errorf("the worker has protocol %d, this supervisor %d; both must be from "+
			"one build", body.Protocol, protocolVersion))
		_ = conn.Close()
	default:
		p.mu.Lock()
		p.hello = true
		p.mu.Unlock()
		if body.Rank == 0 {
			p.link.mu.Lock()
			p.link.main = conn
			p.link.mu.Unlock()
		}
		answer(ctx, conn, r.ID, struct{}{}, nil)
	}
}

func decode(r *jsonrpc2.Request, into any) error {
	if r.Params == nil {
		return fmt.Errorf("%s: expected parameters", r.Method)
	}
	return json.Unmarshal(*r.Params, into)
}

// answer replies, unless the worker has gone.
func answer(ctx context.Context, conn *jsonrpc2.Conn, id jsonrpc2.ID, result any, err error) {
	if err == nil {
		_ = conn.Reply(ctx, id, result)
		return
	}
	var refused *jsonrpc2.Error
	if !errors.As(err, &refused) {
		refused = &jsonrpc2.Error{Code: jsonrpc2.CodeInternalError, Message: err.Error()}
	}
	_ = conn.ReplyWithError(ctx, id, refused)
}
