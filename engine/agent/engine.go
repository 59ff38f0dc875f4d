package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"github.com/recipe-rl/recipe/engine/private"
)

// An agent looks for its engine: it connects to the addresses that the engine has written down. Where a firewall keeps
// it from them, the engine connects to the agent, whose addresses are written down, too.

// AddressFile is where the agent with a name in its certificate writes its addresses; engine is the path of the file
// with the engine's.
func AddressFile(engine, name string) string {
	return filepath.Join(filepath.Dir(engine), "agents", name+".json")
}

// offerPatience is how long a connection of an engine is kept while another session ends.
const offerPatience = 3 * time.Second

// engine returns a connection with an engine: the agent's own, or one that the engine has opened.
func (a *Agent) engine(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		c   net.Conn
		err error
	}
	dialed := make(chan result, 1)
	go func() {
		c, err := a.dialEngine(ctx)
		dialed <- result{c, err}
	}()
	var announced error
	if a.boot.Engine != "" {
		announced = a.announce() // an engine that is reached needs it not
	}
	select {
	case r := <-dialed:
		if r.err == nil {
			return r.c, nil
		}
		select { // the same time is left to an engine that connects itself
		case c := <-a.engines:
			return c, nil
		case <-time.After(redialEvery):
		}
		return nil, errors.Join(r.err, announced)
	case c := <-a.engines:
		cancel()
		if r := <-dialed; r.err == nil {
			_ = r.c.Close()
		}
		return c, nil
	}
}

func (a *Agent) dialEngine(ctx context.Context) (net.Conn, error) {
	// Read again each time: another engine of the run may have written its own.
	var engine Addresses
	if a.boot.Engine == "" {
		a.mu.Lock()
		engine.Addresses = a.addresses
		a.mu.Unlock()
	} else if err := readJSON(a.boot.Engine, &engine); err != nil {
		return nil, err
	}
	config, err := a.boot.Credentials.Config(EngineName)
	if err != nil {
		return nil, err
	}
	c, err := dialFirst(ctx, engine.Addresses, config)
	if err != nil {
		return nil, err // not c, which would be no nil interface
	}
	return c, nil
}

// announce writes down where an engine reaches this agent.
func (a *Agent) announce() error {
	path := AddressFile(a.boot.Engine, NameOf(a.boot.Job, a.boot.Node))
	if err := private.Dir(filepath.Dir(path)); err != nil {
		return err
	}
	a.data.mu.Lock()
	at := a.data.listener.Addr().(*net.TCPAddr)
	a.data.mu.Unlock()
	addresses, err := Reachable(at.Port, !at.IP.IsUnspecified())
	if err != nil {
		return err
	}
	return WriteJSON(path, Addresses{Format: BootstrapFormat, Addresses: addresses})
}

// Reachable lists the addresses at which others may reach a port of this machine; near: on this machine only.
func Reachable(port int, near bool) ([]string, error) {
	if near {
		return []string{net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}, nil
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the addresses of this machine: %w", err)
	}
	var out []string
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			out = append(out, net.JoinHostPort(n.IP.String(), strconv.Itoa(port)))
		}
	}
	if len(out) == 0 {
		return nil, errors.New("this machine has no address but loopback: other machines cannot reach it")
	}
	return out, nil
}

// offered is a connection that an engine has opened.
type offered struct {
	net.Conn
	ended context.CancelFunc
}

func (o offered) Close() error {
	o.ended()
	return o.Conn.Close()
}

// offer hands over a connection that an engine has opened, and returns when it has ended.
func (a *Agent) offer(c net.Conn) {
	ctx, ended := context.WithCancel(context.Background())
	defer ended()
	select {
	case a.engines <- offered{c, ended}:
		<-ctx.Done()
	case <-time.After(offerPatience): // there is a session already
	}
}
