package agent

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/recipe-rl/recipe/engine/host"
)

// Client is the engine's side of a session with an agent.
type Client struct{ mux *yamux.Session }

// NewClient makes a session of a connection that an agent has opened.
func NewClient(c net.Conn) (*Client, error) {
	mux, err := yamux.Client(&pingsLimited{Conn: c}, Multiplex())
	if err != nil {
		return nil, err
	}
	return &Client{mux}, nil
}

// ErrCut reports that the connection to the agent ended before the answer came.
var ErrCut = errors.New("the connection to the agent was cut")

// Close ends the session. The agent looks for its engine then.
func (c *Client) Close() { _ = c.mux.Close() }

// Closed is closed when the session has ended.
func (c *Client) Closed() <-chan struct{} { return c.mux.CloseChan() }

// Hello makes this engine the agent's; lease is how long the agent lives without one; 0: no limit.
// Engine are the addresses at which it looks for the engine, if no file tells it those.
func (c *Client) Hello(ctx context.Context, lease time.Duration, engine []string) (Hello, error) {
	out, err := c.ask(ctx, Request{Op: opHello, Lease: lease, Engine: engine})
	if err != nil {
		return Hello{}, err
	}
	if out.Hello == nil {
		return Hello{}, errors.New("the agent did not say what it is")
	}
	return *out.Hello, nil
}

// Start starts a process.
func (c *Client) Start(ctx context.Context, command host.Command) (host.Identity, error) {
	out, err := c.ask(ctx, Request{Op: opStart, Command: &command})
	if err != nil {
		return host.Identity{}, err
	}
	if out.Process == nil {
		return host.Identity{}, errors.New("the agent did not say which process it has started")
	}
	return *out.Process, nil
}

// Find reports whether the agent has a process; the error is host.ErrGone when it has not.
func (c *Client) Find(ctx context.Context, id host.Identity) error {
	_, err := c.ask(ctx, Request{Op: opFind, Process: &id})
	return err
}

// Wait returns how a process ended, when it has.
func (c *Client) Wait(ctx context.Context, id host.Identity) (string, error) {
	out, err := c.ask(ctx, Request{Op: opWait, Process: &id})
	return out.Ended, err
}

// Kill ends a process and its session.
func (c *Client) Kill(ctx context.Context, id host.Identity) error {
	_, err := c.ask(ctx, Request{Op: opKill, Process: &id})
	return err
}

// Sweep ends what a dead process has left: its session and the programs of its handle.
func (c *Client) Sweep(ctx context.Context, id host.Identity, handle []byte) error {
	_, err := c.ask(ctx, Request{Op: opSweep, Process: &id, Handle: handle})
	return err
}

// Forward gives a port of a block elsewhere an address on the agent's machine.
func (c *Client) Forward(ctx context.Context, f Forward) (string, error) {
	out, err := c.ask(ctx, Request{Op: opForward, Forward: &f})
	return out.Address, err
}

// Expose allows an agent to connect to a port of the agent's machine.
func (c *Client) Expose(ctx context.Context, e Exposure) error {
	_, err := c.ask(ctx, Request{Op: opExpose, Expose: &e})
	return err
}

// Group tells an agent of a job on several machines who the others are.
func (c *Client) Group(ctx context.Context, members []Member) error {
	_, err := c.ask(ctx, Request{Op: opGroup, Group: members})
	return err
}

// Exit tells the agent to end.
func (c *Client) Exit(ctx context.Context) error {
	_, err := c.ask(ctx, Request{Op: opExit})
	return err
}

// Output is what a process has written to stdout, until its handshake.
func (c *Client) Output(ctx context.Context, id host.Identity) (net.Conn, error) {
	stream, _, err := c.open(ctx, Request{Op: opOutput, Process: &id})
	return stream, err
}

// maxSample is far above the length of a sample of a machine with many GPUs.
const maxSample = 256 << 10

// Usage reports how far the agent's machine is used, at each interval, until the context or the session ends. Samples
// are written down, so those that come more often are left out.
func (c *Client) Usage(ctx context.Context, every time.Duration, report func(map[string]float64)) error {
	stream, _, err := c.open(ctx, Request{Op: opUsage, Every: every})
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = stream.Close() })
	defer stop()
	for next := time.Now(); ; {
		var sample map[string]float64
		if err := readLineOf(stream.(conn).in, maxSample, &sample); err != nil {
			return fmt.Errorf("%w: %w", ErrCut, err)
		}
		if now := time.Now(); !now.Before(next) {
			next = now.Add(every / 2)
			report(sample)
		}
	}
}

// Dial connects to a socket of a plugin.
func (c *Client) Dial(ctx context.Context, address string) (net.Conn, error) {
	stream, _, err := c.open(ctx, Request{Op: opDial, Address: address})
	return stream, err
}

func (c *Client) ask(ctx context.Context, r Request) (Response, error) {
	stream, out, err := c.open(ctx, r)
	if stream != nil {
		_ = stream.Close()
	}
	return out, err
}

// open makes a request on a stream of its own, which carries bytes after the response.
func (c *Client) open(ctx context.Context, r Request) (net.Conn, Response, error) {
	stream, err := c.mux.OpenStream()
	if err != nil {
		return nil, Response{}, fmt.Errorf("%w: %w", ErrCut, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = stream.SetDeadline(time.Unix(1, 0)) })
	var out Response
	in := bufio.NewReader(stream)
	if err = writeLine(stream, r); err == nil {
		err = readLine(in, &out)
	}
	switch {
	case !stop():
		err = context.Cause(ctx)
	case err != nil:
		err = fmt.Errorf("%w: %w", ErrCut, err)
	default:
		err = out.err()
	}
	if err != nil {
		_ = stream.Close()
		return nil, out, err
	}
	return conn{stream, in}, out, nil
}

// Splice joins two connections until one side has ended, and closes both.
func Splice(a, b net.Conn) { splice(a, b) }

// DialSession connects to an agent that has written down its addresses, for a session; name is that in its certificate.
func DialSession(ctx context.Context, addresses []string, own Credentials, name string) (*tls.Conn, error) {
	config, err := own.Config(name)
	if err != nil {
		return nil, err
	}
	c, err := dialFirst(ctx, addresses, config)
	if err != nil {
		return nil, err
	}
	if err := writeLine(c, opening{Session: true}); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}
