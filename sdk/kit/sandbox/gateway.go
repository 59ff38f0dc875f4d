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
	"sync/atomic"
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

// Forwarder forwards from sockets, of which each sandbox has one, to the gateway.
type Forwarder struct {
	gateway Gateway // without a socket
	to      string
	dir     string // of the sockets
	remove  func() error
	opened  atomic.Int64
}

// Way is what one sandbox reaches the gateway by.
type Way struct {
	gateway  Gateway
	listener net.Listener
	cancel   context.CancelFunc
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
	return &Forwarder{gateway: g, to: to, dir: dir, remove: remove}, nil
}

// Gateway is what sandboxes have in common: the address, without a way to it.
func (f *Forwarder) Gateway() Gateway { return f.gateway }

// Close removes what Forward has made. Close all ways first.
func (f *Forwarder) Close() error { return f.remove() }

// Open makes the way of one sandbox. A program may connect to its socket as often as it likes: more than
// inside.MostConnections wait, so that it takes no descriptors from the ways of others.
func (f *Forwarder) Open() (*Way, error) {
	w := &Way{gateway: f.gateway, open: map[net.Conn]bool{}}
	w.gateway.socket = filepath.Join(f.dir, strconv.FormatInt(f.opened.Add(1), 10))
	var err error
	if w.listener, err = net.Listen("unix", w.gateway.socket); err != nil {
		return nil, fmt.Errorf("listen for a sandbox: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	w.wait.Go(func() { w.accept(ctx, f.to) })
	return w, nil
}

// Gateway is what a Spec needs.
func (w *Way) Gateway() Gateway { return w.gateway }

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

func (w *Way) accept(ctx context.Context, to string) {
	free := make(chan struct{}, inside.MostConnections)
	for {
		free <- struct{}{}
		conn, err := w.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(100 * time.Millisecond) // too many open files; some will be closed
			<-free
			continue
		}
		w.wait.Go(func() {
			defer func() { <-free }()
			defer w.drop(conn)
			ctx, cancel := context.WithTimeout(ctx, dialWithin)
			defer cancel()
			var dialer net.Dialer
			out, err := dialer.DialContext(ctx, "tcp", to)
			if err != nil {
				return
			}
			defer w.drop(out)
			a, unixEnd := conn.(inside.End)
			b, tcpEnd := out.(inside.End)
			if unixEnd && tcpEnd && w.keep(conn) && w.keep(out) {
				inside.Splice(a, b)
			}
		})
	}
}

// dialWithin bounds connecting to the gateway.
const dialWithin = 30 * time.Second

func (w *Way) keep(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == nil {
		return false
	}
	w.open[c] = true
	return true
}

func (w *Way) drop(c net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, c)
	_ = c.Close()
}

// Close ends all connections.
func (w *Way) Close() error {
	err := w.listener.Close()
	w.cancel()
	w.mu.Lock()
	open := w.open
	w.open = nil
	for c := range open {
		_ = c.Close()
	}
	w.mu.Unlock()
	w.wait.Wait()
	return err
}
