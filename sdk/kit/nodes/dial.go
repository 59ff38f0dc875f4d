package nodes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/recipe-rl/recipe/internal/openfiles"
	"github.com/recipe-rl/recipe/internal/peer"
)

// ErrAway reports that a machine of the block cannot be reached.
var ErrAway = errors.New("the machine cannot be reached")

// dialTimeout bounds a connection to another machine.
const dialTimeout = 15 * time.Second

// Request is what an agent is asked for on its socket, as a line of JSON.
type Request struct {
	Node int `json:"node"`
	Port int `json:"port"` // on loopback of that machine
}

// Answer is its answer, a line of JSON; the connection follows.
type Answer struct {
	Error string `json:"error,omitempty"`
	Away  bool   `json:"away,omitempty"` // the machine itself cannot be reached
}

// Dial connects to a port on loopback of machine n. The agents of the job carry the connection, by TLS.
func Dial(ctx context.Context, n, port int) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", os.Getenv(SocketKey))
	if err != nil {
		return nil, fmt.Errorf("connect to the agent of this machine: %w", err)
	}
	deadline, _ := ctx.Deadline()
	_ = c.SetDeadline(deadline)
	answer, err := ask(c, Request{Node: n, Port: port})
	switch {
	case err != nil:
		err = fmt.Errorf("%w: %w", ErrAway, err)
	case answer.Away:
		err = fmt.Errorf("%w: %s", ErrAway, answer.Error)
	case answer.Error != "":
		err = errors.New(answer.Error)
	}
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("connect to port %d of machine %d of the job: %w", port, n, err)
	}
	_ = c.SetDeadline(time.Time{})
	return c, nil
}

// ask writes a request and reads its answer, and nothing of what follows.
func ask(c net.Conn, r Request) (a Answer, err error) {
	line, err := json.Marshal(r)
	if err != nil {
		return a, err
	}
	if _, err := c.Write(append(line, '\n')); err != nil {
		return a, err
	}
	var in bytes.Buffer
	for one := make([]byte, 1); one[0] != '\n'; in.Write(one) {
		if _, err := io.ReadFull(c, one); err != nil {
			return a, err
		}
	}
	return a, json.Unmarshal(in.Bytes(), &a)
}

// Forward is a port on loopback of this machine that leads to one of another.
type Forward struct {
	node     int
	listener net.Listener
	port     atomic.Int64
}

// Listen opens a port that leads to machine n; To says where.
func Listen(n int) (*Forward, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open a port that leads to machine %d of the job: %w", n, err)
	}
	f := &Forward{node: n, listener: l}
	go f.serve()
	return f, nil
}

// Port is the port of this machine.
func (f *Forward) Port() int { return f.listener.Addr().(*net.TCPAddr).Port }

// To sets the port of the other machine to which later connections lead.
func (f *Forward) To(port int) { f.port.Store(int64(port)) }

// Close closes the port; connections go on.
func (f *Forward) Close() { _ = f.listener.Close() }

func (f *Forward) serve() {
	l := openfiles.Wait(f.listener, nil)
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(50 * time.Millisecond) // the network is down, for one; it passes
			continue
		}
		go f.carry(c)
	}
}

// carry copies both ways until both sides have ended.
func (f *Forward) carry(c net.Conn) {
	defer func() { _ = c.Close() }()
	if peer.Check(c) != nil {
		return // a process of another user
	}
	other, err := Dial(context.Background(), f.node, int(f.port.Load()))
	if err != nil {
		return // the client sees a connection that is closed, as from a server that is down
	}
	defer func() { _ = other.Close() }()
	done := make(chan struct{}, 2)
	pass := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite() // the other direction may still have something to say
		}
		done <- struct{}{}
	}
	go pass(c, other)
	go pass(other, c)
	<-done
	<-done
}
