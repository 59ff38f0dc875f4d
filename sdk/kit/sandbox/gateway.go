package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/internal/temporary"
	"github.com/recipe-rl/recipe/sdk/kit/sandbox/inside"
)

// Gateway is the one address that programs in sandboxes reach.
type Gateway struct {
	socket   string // on this machine
	port     int    // of the loopback, where it is reached in a sandbox
	hostPort string // of URLs in a sandbox
	host     string // a name that is 127.0.0.1 in a sandbox
}

// Forwarder forwards from a socket, which sandboxes have, to the gateway.
type Forwarder struct {
	gateway  Gateway
	listener net.Listener
	remove   func() error
	wait     sync.WaitGroup
	mu       sync.Mutex
	open     map[net.Conn]bool // nil: it is closed
}

// unprivileged ports begin here.
const unprivileged = 1024

// Forward makes a way to the address of a base URL.
func Forward(base string) (*Forwarder, error) {
	u, err := url.Parse(base)
	if err != nil || u.Hostname() == "" {
		return nil, fmt.Errorf("the gateway's address is %q; expected a URL", base)
	}
	port, _ := strconv.Atoi(u.Port())
	if u.Port() == "" {
		port = map[string]int{"https": 443}[u.Scheme]
		if u.Scheme == "http" {
			port = 80
		}
	}
	g := Gateway{host: u.Hostname()}
	to := net.JoinHostPort(u.Hostname(), strconv.Itoa(port))
	if port < unprivileged {
		port += 10000
	}
	g.port = port
	g.hostPort = net.JoinHostPort(g.host, strconv.Itoa(port))
	if net.ParseIP(g.host) != nil {
		if u.Scheme == "https" && !net.ParseIP(g.host).IsLoopback() {
			return nil, fmt.Errorf("the gateway's address is %s: its certificate is for an address that a sandbox does not "+
				"have; serve it under a name", base)
		}
		g.hostPort, g.host = net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), ""
	}
	// The run's own folders have paths that are too long for a socket.
	dir, remove, err := temporary.Dir("", "recipe-gateway-")
	if err != nil {
		return nil, err
	}
	g.socket = filepath.Join(dir, "gateway")
	listener, err := net.Listen("unix", g.socket)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen for sandboxes: %w", err), remove())
	}
	f := &Forwarder{gateway: g, listener: listener, remove: remove, open: map[net.Conn]bool{}}
	f.wait.Go(func() { f.accept(to) })
	return f, nil
}

// Gateway is what a Spec needs.
func (f *Forwarder) Gateway() Gateway { return f.gateway }

// URL is a URL of the gateway as it is written in a sandbox.
func (g Gateway) URL(outside string) string {
	u, err := url.Parse(outside)
	if err != nil || g.hostPort == "" {
		return outside
	}
	u.Host = g.hostPort
	return u.String()
}

// Hosts are names that are 127.0.0.1 in a sandbox, for WriteFiles.
func (g Gateway) Hosts() []string {
	if g.host == "" || g.host == "localhost" {
		return nil
	}
	return []string{g.host}
}

func (f *Forwarder) accept(to string) {
	for {
		conn, err := f.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(100 * time.Millisecond) // too many open files; some will be closed
			continue
		}
		f.wait.Go(func() {
			defer f.drop(conn)
			ctx, cancel := context.WithTimeout(context.Background(), dialWithin)
			defer cancel()
			var dialer net.Dialer
			out, err := dialer.DialContext(ctx, "tcp", to)
			if err != nil {
				return
			}
			defer f.drop(out)
			a, unixEnd := conn.(inside.End)
			b, tcpEnd := out.(inside.End)
			if unixEnd && tcpEnd && f.keep(conn) && f.keep(out) {
				inside.Splice(a, b)
			}
		})
	}
}

// dialWithin bounds connecting to the gateway.
const dialWithin = 30 * time.Second

func (f *Forwarder) keep(c net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open == nil {
		return false
	}
	f.open[c] = true
	return true
}

func (f *Forwarder) drop(c net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.open, c)
	_ = c.Close()
}

// Close ends all connections.
func (f *Forwarder) Close() error {
	err := f.listener.Close()
	f.mu.Lock()
	open := f.open
	f.open = nil
	for c := range open {
		_ = c.Close()
	}
	f.mu.Unlock()
	f.wait.Wait()
	return errors.Join(err, f.remove())
}
