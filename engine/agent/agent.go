package agent

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/internal/openfiles"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/executor"
)

const (
	// dialTimeout bounds an attempt to reach one address, TLS included.
	dialTimeout = 5 * time.Second
	// redialEvery is how long an agent waits before it looks for its engine again.
	redialEvery = time.Second
	// endTimeout bounds the end of what an agent has started.
	endTimeout = 30 * time.Second
	// stopGrace is how long a plugin may take to stop its block when the agent itself is asked to end, where its job does
	// not say it, and stopMargin what it may take beyond that, to end what is left of the block.
	stopGrace, stopMargin = 20 * time.Second, 5 * time.Second
	// handOverTimeout is how long an agent that is asked to end waits for its engine. The job may be killed earlier.
	handOverTimeout = 5 * time.Minute
)

// ErrLost reports that an agent has found no engine for as long as it may live without one.
var ErrLost = errors.New("no engine was reached for too long")

// Agent runs on the machine of a job.
type Agent struct {
	boot     Bootstrap
	instance string
	log      io.Writer
	runner   host.Local
	files    func() (uint64, error) // how many a process may have open

	exit     chan struct{} // closed when the engine has asked for the end
	exitOnce sync.Once

	data    *data
	engines chan net.Conn // connections that an engine has opened

	mu        sync.Mutex
	lease     time.Duration // 0: no limit
	seen      time.Time     // when an engine was last connected
	processes []host.Process
	dirs      map[string]string // of processes, by mark
	sockets   string            // folder of the plugin's sockets; empty: there is none

	removeSockets func() error
	members       []Member // the agents of the job, when it has several machines
	connected     bool     // to an engine
	addresses     []string // of the engine, where no file has them
	staging       *staging // nil: the machine shares its file system with the engine's

	remoteStarts net.Listener // where the plugin has programs started on other machines of the job
}

// Run is the life of an agent with a bootstrap. It returns nil when the engine has told it to end or the context has
// ended, and ErrLost without an engine; whatever it has started has ended, too.
func Run(ctx context.Context, b Bootstrap, log io.Writer) error {
	return run(ctx, b, rand.Text(), nil, log)
}

func run(ctx context.Context, b Bootstrap, instance string, s *staging, log io.Writer) error {
	server, err := b.Credentials.Config("")
	if err != nil {
		return err
	}
	a := &Agent{boot: b, instance: instance, log: log, files: openfiles.Limit, staging: s, addresses: b.Addresses,
		exit: make(chan struct{}), lease: b.Patience,
		seen: time.Now(), data: newData(server, b.Credentials), dirs: map[string]string{},
		engines: make(chan net.Conn)}
	a.data.run, a.data.engine, a.data.leads = a.runFor, a.offer, a.leads
	if err := a.data.listen(b.Listen); err != nil {
		return err
	}
	session, cancel := context.WithCancel(context.WithoutCancel(ctx)) // the engine may see how the processes end
	defer cancel()
	connected := make(chan error, 1)
	go func() { connected <- a.connect(session) }()
	select {
	case err = <-connected:
	case <-a.exit:
		// The answer to exit is on its way; the engine closes the connection when it has it.
		select {
		case <-connected:
		case <-time.After(redialEvery):
		}
	case <-ctx.Done():
	}
	err = errors.Join(err, a.end(ctx.Err() != nil))
	if ctx.Err() != nil && s != nil {
		a.handOver()
	}
	a.data.close()
	if b.Engine != "" {
		_ = os.Remove(AddressFile(b.Engine, NameOf(b.Job, b.Node))) // without it, too, no engine reaches this agent
	}
	return err
}

// handOver waits until the engine has fetched what the block wrote when the job was asked to end, such as a last
// checkpoint: it tells the agent to end then.
func (a *Agent) handOver() {
	a.mu.Lock()
	connected := a.connected
	a.mu.Unlock()
	if !connected {
		return
	}
	fmt.Fprintf(a.log, "%s waiting for the engine to fetch what the block has written\n", time.Now().Format(time.RFC3339))
	select {
	case <-a.exit:
	case <-time.After(handOverTimeout):
	}
}

// connect keeps a session with an engine, a later one when one is gone, until there was none for too long.
func (a *Agent) connect(ctx context.Context) error {
	for ctx.Err() == nil {
		err := a.session(ctx)
		select {
		case <-a.exit:
			return nil
		default:
		}
		a.mu.Lock()
		lost := a.lease > 0 && time.Since(a.seen) > a.lease
		lease := a.lease
		a.mu.Unlock()
		if lost {
			return fmt.Errorf("%w (%s): %w", ErrLost, lease, err)
		}
		fmt.Fprintf(a.log, "%s no engine: %v\n", time.Now().Format(time.RFC3339), err)
		select {
		case <-ctx.Done():
		case <-time.After(redialEvery):
		}
	}
	return context.Cause(ctx)
}

// session connects to the engine and answers it until the connection ends.
func (a *Agent) session(ctx context.Context) error {
	c, err := a.engine(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	own, _, err := net.SplitHostPort(c.LocalAddr().String())
	if err != nil {
		return err
	}
	a.data.reachedAt(own)
	mux, err := yamux.Server(c, Multiplex())
	if err != nil {
		return err
	}
	defer func() { _ = mux.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = mux.Close() })
	defer stop()
	a.setConnected(true)
	defer a.setConnected(false)
	fmt.Fprintf(a.log, "%s connected to the engine at %s\n", time.Now().Format(time.RFC3339), c.RemoteAddr())
	for {
		stream, err := mux.Accept()
		if err != nil {
			a.mu.Lock()
			a.seen = time.Now()
			a.mu.Unlock()
			return fmt.Errorf("the connection to the engine ended: %w", err)
		}
		go a.answer(ctx, mux, stream)
	}
}

func (a *Agent) setConnected(now bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.connected = now
}

// dialFirst connects to the first of the addresses where the server that the configuration names answers.
func dialFirst(ctx context.Context, addresses []string, config *tls.Config) (*tls.Conn, error) {
	errs := []error{errors.New("none of these addresses answers")}
	for _, address := range addresses {
		c, cancel := context.WithTimeout(ctx, dialTimeout)
		conn, err := (&tls.Dialer{Config: config}).DialContext(c, "tcp", address)
		cancel()
		if err == nil {
			return conn.(*tls.Conn), nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", address, err))
	}
	return nil, errors.Join(errs...)
}

// answer answers one request.
func (a *Agent) answer(ctx context.Context, mux *yamux.Session, stream net.Conn) {
	defer func() { _ = stream.Close() }()
	in := bufio.NewReader(stream)
	_ = stream.SetReadDeadline(time.Now().Add(dialTimeout))
	var r Request
	if err := readLine(in, &r); err != nil {
		_ = writeLine(stream, Response{Error: fmt.Sprintf("read the request: %v", err)})
		return
	}
	_ = stream.SetReadDeadline(time.Time{})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // no answer is waited for when the connection is gone
		select {
		case <-mux.CloseChan():
			cancel()
		case <-ctx.Done():
		}
	}()
	out, then, err := a.do(ctx, r)
	if err != nil {
		out.Error, out.Gone = err.Error(), errors.Is(err, host.ErrGone)
		var told *sdk.Error
		if errors.As(err, &told) {
			out.Remedy = told.Remedy
		}
	}
	if err := writeLine(stream, out); err == nil && then != nil {
		then(conn{stream, in})
	}
}

// do carries out a request. What then does with the stream follows the response.
func (a *Agent) do(ctx context.Context, r Request) (out Response, then func(net.Conn), err error) {
	if r.Process != nil {
		r.Process.Host = "" // the engine's name for this agent
	}
	switch r.Op {
	case opHello:
		out.Hello = a.hello(r.Lease, r.Engine)
	case opStart:
		out.Process, err = a.start(ctx, *r.Command)
	case opFind:
		_, err = a.process(r.Process)
	case opOutput:
		then, err = a.output(r.Process)
	case opWait:
		out.Ended, err = a.wait(ctx, r.Process)
	case opKill:
		err = a.kill(ctx, r.Process)
	case opSweep:
		err = a.runner.Sweep(ctx, *r.Process, r.Handle, nil)
	case opDial:
		then, err = a.dial(ctx, r.Address)
	case opForward:
		out.Address, err = a.data.forward(*r.Forward)
	case opExpose:
		err = a.data.expose(*r.Expose)
	case opGroup:
		err = a.group(r.Group)
	case opUsage:
		then, err = a.usage(ctx, r.Every)
	case opExit:
		a.exitOnce.Do(func() {
			if a.staging != nil {
				a.staging.taken = true
			}
			close(a.exit)
		})
	default:
		return a.transfer(ctx, r)
	}
	return out, then, err
}

// transfer carries out a request about staged files.
func (a *Agent) transfer(ctx context.Context, r Request) (out Response, then func(net.Conn), err error) {
	switch {
	case a.staging == nil:
		err = errors.New("this agent has no folder for staged files")
	case r.Op == opMissing:
		out.Missing = a.staging.missing(r.Files)
	case r.Op == opPut && len(r.Files) == 1:
		return a.staging.put(r.Files[0])
	case r.Op == opPlace:
		err = a.staging.place(r.Files, r.Folders)
	case r.Op == opList:
		out.Entries, err = a.staging.list()
	case r.Op == opPython && r.Python != nil:
		err = a.staging.preparePython(ctx, *r.Python)
	case r.Op == opGet:
		return a.staging.get(r.Path, r.Offset)
	default:
		err = fmt.Errorf("the agent does not know the request %q; the engine and its agents must be the same version of "+
			"recipe", r.Op)
	}
	return out, then, err
}

// hello makes the engine that asks the agent's own.
func (a *Agent) hello(lease time.Duration, engine []string) *Hello {
	name, _ := os.Hostname()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lease, a.seen = lease, time.Now()
	if len(engine) > 0 {
		a.addresses = engine
	}
	h := &Hello{Job: a.boot.Job, Node: a.boot.Node, Instance: a.instance, Host: name}
	h.Data = a.data.reachable()
	h.Also = a.data.also()
	if a.staging != nil {
		h.Folder, h.Program = a.staging.dir, a.staging.program
	}
	return h
}

// end ends the processes; in order, their blocks are stopped first.
func (a *Agent) end(inOrder bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	a.mu.Lock()
	processes := a.processes
	a.mu.Unlock()
	if inOrder {
		a.terminate(processes)
	}
	var errs []error
	for _, p := range processes {
		errs = append(errs, p.Kill(ctx),
			a.runner.Sweep(ctx, p.Identity(), host.LastHandle(a.dirs[p.Identity().Mark]), nil))
	}
	if a.remoteStarts != nil {
		errs = append(errs, a.remoteStarts.Close())
	}
	if a.sockets != "" {
		errs = append(errs, a.removeSockets())
	}
	return errors.Join(errs...)
}

// NameOf is the name in the certificate of the agent on one machine of a job, at most 63 characters as names of hosts
// have.
func NameOf(k executor.Key, node int) string {
	text := k.String()
	if node > 0 {
		text += fmt.Sprintf("#%d", node)
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16]) + ".agent"
}
