package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/engine/agent"
	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/internal/openfiles"
	"github.com/recipe-rl/recipe/internal/temporary"
	"github.com/recipe-rl/recipe/sdk/executor"
)

// addressFile holds the addresses of the newest engine, in the run directory: agents read it whenever they look for an
// engine.
const addressFile = "engine-address.json"

// helloTimeout is the deadline for a new connection to identify itself.
const helloTimeout = 15 * time.Second

// Hub is what an engine has of its jobs. It opens nothing before the first job.
type Hub struct {
	run   string // directory, absolute
	id    string // of the run
	lease time.Duration
	// patience is how long the agents of a running job may take to connect.
	patience time.Duration

	ctx    context.Context // of everything that runs in the background
	cancel context.CancelFunc
	group  sync.WaitGroup

	gangs   sync.Mutex // held while one is submitted: see Together
	records sync.Mutex // held while the record of a job is replaced by that of the next

	programs chan struct{} // a place for each connection that takes the program

	mu        sync.Mutex
	authority *authority
	own       agent.Credentials
	config    *tls.Config             // of the engine's port
	listeners map[bool]net.Listener   // by whether it is for this machine only
	addresses []string                // that lead to the listeners
	peers     map[string]*peer        // expected agents, by the name in their certificate
	current   map[string]*peer        // the newest agent of each block
	routes    map[route]bool          // by whether they lead to this machine
	dirs      map[executor.Key]string // of blocks whose agents join
	jobs      map[*Job]bool
	watching  bool
	relay     *peer
	samplers  map[string]*peer // by the host whose processors and memory they report

	sockets       string // folder of the sockets that lead to plugins of jobs; empty: there is none
	removeSockets func() error

	// of the samples of machines; report is nil: none
	every  time.Duration
	report func(Machine)
}

// New returns the hub of a run. Lease is how long agents live without an engine; 0: no limit.
func New(run, id string, lease time.Duration) *Hub {
	ctx, cancel := context.WithCancel(context.Background())
	return &Hub{run: run, id: id, lease: lease, patience: connectPatience, ctx: ctx, cancel: cancel,
		listeners: map[bool]net.Listener{}, programs: make(chan struct{}, programsAtOnce),
		peers: map[string]*peer{}, current: map[string]*peer{}, routes: map[route]bool{},
		dirs: map[executor.Key]string{}, jobs: map[*Job]bool{},
		samplers: map[string]*peer{}}
}

// Close lets go of all agents: they look for another engine, for as long as their lease allows.
func (h *Hub) Close() {
	h.cancel()
	h.mu.Lock()
	for _, l := range h.listeners {
		_ = l.Close()
	}
	for _, p := range h.peers {
		p.disconnect()
	}
	if h.sockets != "" {
		_ = h.removeSockets() // else the next engine does
	}
	h.mu.Unlock()
	h.group.Wait()
}

// socketLimit is the longest path of the folder above that of the sockets.
const socketLimit = 63

// socketFolder is where the sockets lie that lead to plugins of jobs. They are of use to this engine alone.
func (h *Hub) socketFolder() (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sockets == "" {
		root, err := private.Root(socketLimit)
		if err != nil {
			return "", err
		}
		if h.sockets, h.removeSockets, err = temporary.Dir(root, "jobs-"); err != nil {
			return "", err
		}
	}
	return h.sockets, nil
}

// listen opens the engine's port: on loopback for agents on this machine, else on all of its addresses.
func (h *Hub) listen(near bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.authority == nil {
		a, err := openAuthority(h.run)
		if err != nil {
			return err
		}
		own, err := a.issue(agent.EngineName)
		if err != nil {
			return err
		}
		if h.config, err = own.Config(""); err != nil {
			return err
		}
		forJoins(h.config)
		h.authority, h.own = a, own
	}
	if h.listeners[near] != nil {
		return nil
	}
	l, err := h.listenAgain(near)
	if err != nil {
		return fmt.Errorf("listen for agents: %w", err)
	}
	h.listeners[near] = l
	h.group.Add(1)
	go h.accept(l)
	if err := h.expectRecorded(); err != nil {
		return err
	}
	file := agent.Addresses{Format: agent.BootstrapFormat}
	for near, l := range h.listeners {
		more, err := agent.Reachable(l.Addr().(*net.TCPAddr).Port, near)
		if err != nil {
			return err
		}
		file.Addresses = append(file.Addresses, more...)
	}
	slices.Sort(file.Addresses)
	h.addresses = file.Addresses
	return agent.WriteJSON(filepath.Join(h.run, addressFile), file)
}

// expectRecorded expects the agents that an earlier engine has left, before any of them connects: one that is not
// expected is told to end.
func (h *Hub) expectRecorded() error {
	records, err := filepath.Glob(filepath.Join(h.run, "blocks", "*", recordName))
	if err != nil {
		return fmt.Errorf("find the jobs of an earlier engine: %w", err)
	}
	for _, path := range records {
		if r, err := readRecord(filepath.Dir(path)); err == nil { // who needs the job says what is wrong with its record
			h.expectLocked(r.Handle.Key, r.nodes())
			if r.RecipeDir != "" {
				h.dirs[r.Handle.Key] = filepath.Dir(path)
			}
		}
	}
	if r, err := readRelay(h.run); err == nil && r.Program.Alive() {
		h.relay = h.expectLocked(r.Job, 1)[0]
	}
	return h.recallRoutes()
}

func (h *Hub) accept(l net.Listener) {
	defer h.group.Done()
	l = openfiles.Wait(l, nil)
	var unknown agent.Strangers
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(50 * time.Millisecond) // the network is down, for one; it passes
			continue
		}
		known := unknown.Add(c)
		h.group.Go(func() {
			defer known()
			if err := h.greet(c); err != nil {
				_ = c.Close()
			}
		})
	}
}

// greet finds out which agent has connected, and makes this engine its own.
func (h *Hub) greet(raw net.Conn) error {
	ctx, cancel := context.WithTimeout(h.ctx, helloTimeout)
	defer cancel()
	raw, asks, err := h.peek(raw)
	if err != nil || asks {
		return err
	}
	h.mu.Lock()
	c := tls.Server(raw, h.config)
	h.mu.Unlock()
	if err := c.HandshakeContext(ctx); err != nil {
		return err
	}
	if c.ConnectionState().NegotiatedProtocol == agent.JoinProtocol {
		return errors.Join(h.admit(c), c.Close())
	}
	return h.session(ctx, c)
}

// session makes this engine that of the agent at the other end of a connection.
func (h *Hub) session(ctx context.Context, c *tls.Conn) error {
	client, err := agent.NewClient(c)
	if err != nil {
		return err
	}
	h.mu.Lock()
	p, addresses := h.peers[agent.PeerName(c)], h.addresses
	h.mu.Unlock()
	hello, err := client.Hello(ctx, h.lease, addresses)
	if err == nil && (p == nil || !p.connected(client, hello)) {
		// Of a job that this run has given up, or a second one with the same bootstrap: it must not go on beside the other.
		err = errors.Join(errors.New("not an agent of this run"), client.Exit(ctx))
	}
	if err != nil {
		client.Close()
		return err
	}
	if hello.Folder != "" {
		_ = h.announce(p) // without it a later engine at another port waits until the agent gives up
	}
	h.group.Go(func() { h.reroute(p) })
	return nil
}

// expect returns the agents of a job, one for each machine, whose connections are accepted from now on.
func (h *Hub) expect(k executor.Key, nodes int) []*peer {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.expectLocked(k, nodes)
}

func (h *Hub) expectLocked(k executor.Key, nodes int) []*peer {
	out := make([]*peer, nodes)
	for i := range out {
		name := agent.NameOf(k, i)
		if out[i] = h.peers[name]; out[i] == nil {
			out[i] = &peer{key: k, node: i, name: name, changed: make(chan struct{})}
			h.peers[name] = out[i]
		}
	}
	h.current[k.Block] = out[0] // blocks run on the first machine of their job
	return out
}

// forget accepts the agents of a job no more.
func (h *Hub) forget(members []*peer) {
	for _, p := range members {
		h.forgetOne(p)
	}
}

func (h *Hub) forgetOne(p *peer) {
	h.mu.Lock()
	delete(h.peers, p.name)
	delete(h.dirs, p.key)
	_ = os.Remove(agent.AddressFile(filepath.Join(h.run, addressFile), p.name)) // of one that is to connect no more
	before := len(h.routes)
	maps.DeleteFunc(h.routes, func(r route, _ bool) bool { return r.from == p.block() })
	if len(h.routes) < before {
		_ = h.keepRoutes() // one too many leads to a job that is over
	}
	if h.current[p.key.Block] == p {
		delete(h.current, p.key.Block)
	}
	h.mu.Unlock()
	p.disconnect()
}

// bootstrap writes the file with which the agents of a job are started.
func (h *Hub) bootstrap(path string, members []*peer, grace time.Duration, near bool) error {
	h.mu.Lock()
	a := h.authority
	h.mu.Unlock()
	b := agent.Bootstrap{Format: agent.BootstrapFormat, Job: members[0].key, Engine: filepath.Join(h.run, addressFile),
		Patience: connectPatience, Grace: grace}
	if near {
		b.Listen = "127.0.0.1"
	}
	for i, p := range members {
		own, err := a.issue(p.name)
		if err != nil {
			return err
		}
		if i == 0 {
			b.Credentials = own
		} else {
			b.Others = append(b.Others, own)
		}
	}
	return agent.WriteJSON(path, b)
}

// Program is the command of an agent. The recipe program must lie at the same path on the machine where it runs.
func Program(bootstrap string) ([]string, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program, which the agent is: %w", err)
	}
	return []string{path, "agent", "--bootstrap", bootstrap}, nil
}
