package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/engine/agent"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/sdk/executor"
)

// peer is an agent as the engine knows it: connected, or expected to connect.
type peer struct {
	key  executor.Key
	node int    // the machine among those of its job
	name string // in its certificate

	mu      sync.Mutex
	client  *agent.Client // nil: not connected
	hello   agent.Hello
	cut     time.Time     // when it was found to be connected no more; zero while it is, and before it ever was
	dialing bool          // a connection to it is being opened
	over    string        // how its job ended; empty while it may connect again
	changed chan struct{} // closed at each change, and replaced
}

// block is the address of the block; empty for the relay of this machine.
func (p *peer) block() string { return p.key.Block }

func (p *peer) notify() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// connected takes a new connection. It refuses another agent than the one that has connected before.
func (p *peer) connected(c *agent.Client, hello agent.Hello) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over != "" || hello.Job != p.key || hello.Node != p.node ||
		p.hello.Instance != "" && p.hello.Instance != hello.Instance {
		return false
	}
	if p.client != nil {
		p.client.Close()
	}
	p.client, p.hello, p.cut = c, hello, time.Time{}
	p.notify()
	return true
}

func (p *peer) disconnect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.client != nil {
		p.client.Close()
		p.client = nil
	}
}

// end reports that the job is over: the agent does not connect again.
func (p *peer) end(how string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over == "" {
		p.over = how
		p.notify()
	}
}

// state is what is known now, and what is closed when that changes.
func (p *peer) state() (client *agent.Client, over string, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.client != nil {
		select {
		case <-p.client.Closed():
			p.client, p.cut = nil, time.Now()
		default:
		}
	}
	return p.client, p.over, p.changed
}

// host is the name of the agent's machine.
func (p *peer) host() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hello.Host
}

// cutSince is when the agent was found to be connected no more; zero while it is.
func (p *peer) cutSince() time.Time {
	p.state()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cut
}

// get waits for the connection of the agent. The error is host.ErrGone when its job is over.
func (p *peer) get(ctx context.Context) (*agent.Client, error) {
	for {
		client, over, changed := p.state()
		switch {
		case over != "":
			return nil, fmt.Errorf("the job of %s is over (%s): %w", p.key, over, host.ErrGone)
		case client != nil:
			return client, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the agent of %s to connect: %w", p.key, context.Cause(ctx))
		}
	}
}

// do asks the agent what may be asked twice: again when the connection was cut meanwhile.
func (p *peer) do(ctx context.Context, ask func(*agent.Client) error) error {
	for {
		client, err := p.get(ctx)
		if err != nil {
			return err
		}
		if err = ask(client); !errors.Is(err, agent.ErrCut) || ctx.Err() != nil {
			return err
		}
		client.Close()
	}
}

// via are the addresses at which other agents reach this one.
func (p *peer) via() ([]string, error) {
	p.mu.Lock()
	data, also := p.hello.Data, p.hello.Also
	p.mu.Unlock()
	own, port, err := net.SplitHostPort(data)
	if err != nil {
		return nil, fmt.Errorf("the agent of %s accepts no connections of others: %w", p.key, err)
	}
	if ip := net.ParseIP(own); ip == nil || !ip.IsUnspecified() {
		return append([]string{data}, slices.DeleteFunc(slices.Clone(also), func(a string) bool { return a == data })...), nil
	}
	var n int
	if _, err := fmt.Sscan(port, &n); err != nil {
		return nil, err
	}
	list, err := agent.Reachable(n, false)
	return append(list, net.JoinHostPort("127.0.0.1", port)), err
}
