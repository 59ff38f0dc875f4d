package agent

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/internal/openfiles"
	"github.com/recipe-rl/recipe/internal/peer"
)

// data carries connections of blocks to blocks on other machines. A block listens on loopback, as without an executor;
// the agent beside it accepts connections of the agents that the engine allows, by mutual TLS, and an agent beside the
// block that connects gives it a loopback port. None of it passes through the engine.
type data struct {
	server      *tls.Config
	credentials Credentials
	run         func(from string, p Program, c net.Conn) // starts a program for another agent of the job
	leads       func(name string) bool                   // the agent on the first machine of the job may connect

	engine func(net.Conn) // takes a connection that an engine has opened

	strangers Strangers

	mu       sync.Mutex
	listener net.Listener
	address  string                 // HOST:PORT where others reach the listener
	exposes  map[[2]string]Exposure // by target and block
	forwards map[[2]string]*forward // by block and target
	closed   bool
}

type forward struct {
	Forward
	listener net.Listener
	carried  map[net.Conn]net.Conn // connections to the other agent, and those of the block that they carry
}

// leave ends the connections that go to addresses at which the other agent is reached no more: their ends would learn
// of that after minutes. It is called with the lock of the data held.
func (f *forward) leave() {
	for other, c := range f.carried {
		if !slices.Contains(f.Via, other.RemoteAddr().String()) {
			_, _ = other.Close(), c.Close()
		}
	}
}

func newData(server *tls.Config, c Credentials) *data {
	return &data{server: server, credentials: c, exposes: map[[2]string]Exposure{}, forwards: map[[2]string]*forward{}}
}

// listen opens the port for other agents and for engines; host is where, empty: at all addresses of the machine.
func (d *data) listen(host string) error {
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return fmt.Errorf("listen for agents of other machines: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listener, d.address = l, l.Addr().String()
	go accept(l, d.serve)
	return nil
}

// reachedAt says at which address of this machine the engine has reached it, which is right for other agents, too.
func (d *data) reachedAt(host string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at := d.listener.Addr().(*net.TCPAddr); at.IP.IsUnspecified() {
		d.address = net.JoinHostPort(host, strconv.Itoa(at.Port))
	}
}

// host is the address of this machine at which others reach it; empty while it is not known.
func (d *data) host() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	host, _, err := net.SplitHostPort(d.address)
	if ip := net.ParseIP(host); err != nil || ip == nil || ip.IsUnspecified() {
		return ""
	}
	return host
}

// also are all addresses of this machine at which it listens; nil where it listens at one.
func (d *data) also() []string {
	d.mu.Lock()
	at := d.listener.Addr().(*net.TCPAddr)
	d.mu.Unlock()
	if !at.IP.IsUnspecified() {
		return nil
	}
	all, _ := Reachable(at.Port, false) // none: the one by which the engine is reached is known
	return all
}

// accept serves each connection in a goroutine of its own, until the listener is closed. What the agent has printed is
// its job's log.
func accept(l net.Listener, serve func(net.Conn)) {
	l = openfiles.Wait(l, nil)
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(50 * time.Millisecond) // the network is down, for one; it passes
			continue
		}
		go serve(c)
	}
}

// reachable is where other agents connect.
func (d *data) reachable() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.address
}

// expose allows an agent to connect to a port of this machine.
func (d *data) expose(e Exposure) error {
	if err := loopbackOnly(e.Target); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.exposes[[2]string{e.Target, e.Block}] = e
	return nil
}

func loopbackOnly(target string) error {
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("%s is not an address on loopback", target)
	}
	return nil
}

// allowed reports whether the holder of a certificate may connect to a target.
func (d *data) allowed(name, target string) bool {
	if d.leads != nil && d.leads(name) && loopbackOnly(target) == nil {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.exposes {
		if e.Target == target && e.Name == name && name != "" {
			return true
		}
	}
	return false
}

// opening is the first line of a connection between agents; its answer is a Response.
type opening struct {
	Target  string   `json:"target"`
	Session bool     `json:"session,omitempty"` // of an engine, instead
	Program *Program `json:"program,omitempty"` // to be started, instead of a connection to Target
}

// serve carries a connection of another agent to a port of this machine.
func (d *data) serve(raw net.Conn) {
	known := d.strangers.Add(raw)
	defer known()
	c := tls.Server(raw, d.server)
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(dialTimeout))
	in := bufio.NewReader(c)
	var o opening
	if err := c.Handshake(); err != nil {
		return
	}
	known()
	if err := readLine(in, &o); err != nil {
		return
	}
	if o.Session && PeerName(c) == EngineName {
		_ = c.SetDeadline(time.Time{})
		d.engine(conn{c, in})
		return
	}
	if o.Program != nil {
		_ = c.SetDeadline(time.Time{})
		d.run(PeerName(c), *o.Program, conn{c, in})
		return
	}
	if !d.allowed(PeerName(c), o.Target) {
		_ = writeLine(c, Response{Error: fmt.Sprintf("connections to %s are not allowed", o.Target)})
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	to, err := peer.Dial(ctx, "tcp", o.Target)
	cancel()
	if err != nil {
		_ = writeLine(c, Response{Error: err.Error()})
		return
	}
	if err := writeLine(c, Response{}); err != nil {
		_ = to.Close()
		return
	}
	_ = c.SetDeadline(time.Time{})
	splice(conn{c, in}, to)
}

// forward gives a port of another machine a loopback port of this one: the same one if that is free, so that an address
// is read alike everywhere. Asked again for the same port, it returns the same address and connects by the newer way.
func (d *data) forward(f Forward) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := [2]string{f.Block, f.Target}
	if old := d.forwards[key]; old != nil {
		old.Forward = f
		old.leave()
		return old.listener.Addr().String(), nil
	}
	if d.closed {
		return "", net.ErrClosed
	}
	_, port, err := net.SplitHostPort(f.Target)
	if err != nil {
		return "", err
	}
	if n, err := strconv.Atoi(port); err != nil || n <= 0 {
		return "", fmt.Errorf("%s has no port", f.Target)
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return "", err
	}
	added := &forward{Forward: f, listener: l, carried: map[net.Conn]net.Conn{}}
	d.forwards[key] = added
	go accept(l, func(c net.Conn) { d.carry(added, c) })
	return l.Addr().String(), nil
}

// carry carries a connection of a block of this machine to the other one.
func (d *data) carry(f *forward, c net.Conn) {
	defer func() { _ = c.Close() }()
	if peer.Check(c) != nil {
		return // a process of another user is no block of this run
	}
	d.mu.Lock()
	to := f.Forward
	d.mu.Unlock()
	config, err := d.credentials.Config(to.Name)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*dialTimeout)
	defer cancel()
	other, err := dialFirst(ctx, to.Via, config)
	if err != nil {
		return // the block sees a connection that is closed, as from a server that is down
	}
	defer func() { _ = other.Close() }()
	if !d.carries(f, other, c) {
		return
	}
	defer d.carried(f, other)
	_ = other.SetDeadline(time.Now().Add(dialTimeout))
	in := bufio.NewReader(other)
	var r Response
	if err := writeLine(other, opening{Target: to.Target}); err != nil {
		return
	}
	if err := readLine(in, &r); err != nil || r.Error != "" {
		return
	}
	_ = other.SetDeadline(time.Time{})
	splice(c, conn{other, in})
}

// carries remembers a connection of a forward, unless its way has changed meanwhile.
func (d *data) carries(f *forward, other, c net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Contains(f.Via, other.RemoteAddr().String()) {
		return false
	}
	f.carried[other] = c
	return true
}

// carried forgets it.
func (d *data) carried(f *forward, other net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(f.carried, other)
}

func (d *data) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.listener != nil {
		_ = d.listener.Close()
	}
	for _, f := range d.forwards {
		_ = f.listener.Close()
	}
}
