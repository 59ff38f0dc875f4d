package remote

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/recipe-rl/recipe/engine/agent"
	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/sdk/executor"
	"github.com/recipe-rl/recipe/sdk/proc"
)

// route is a way from a block to a port of a block on another machine.
type route struct{ from, to, target string }

// routesFile holds the routes of a run, in its directory, for the next engine. An agent is not asked for them: a
// machine that is not ours could name any port of the others.
const routesFile = "routes.json"

// routesLimit is the most that is read of it: a route has some hundred bytes.
const routesLimit = 64 << 20

// keptRoute is a route in that file.
type keptRoute struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Target string `json:"target"`
	Here   bool   `json:"here"` // To is on the engine's machine
}

// keepRoutes is called with the lock held.
func (h *Hub) keepRoutes() error {
	list := make([]keptRoute, 0, len(h.routes))
	for r, here := range h.routes {
		list = append(list, keptRoute{r.from, r.to, r.target, here})
	}
	return agent.WriteJSON(filepath.Join(h.run, routesFile), list)
}

// recallRoutes reads the routes of an earlier engine; it is called with the lock held.
func (h *Hub) recallRoutes() error {
	data, err := private.ReadFile(filepath.Join(h.run, routesFile), routesLimit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var list []keptRoute
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		return fmt.Errorf("read the connections between the run's blocks: %w", err)
	}
	for _, r := range list {
		if at := (route{r.From, r.To, r.Target}); !h.routes[at] {
			h.routes[at] = r.Here
		}
	}
	return nil
}

// Reach returns an address on the machine of one block that leads to a loopback port on the machine of another. A block
// without a job is on this machine. The address stays valid when the other block moves, if its port stays the same.
func (h *Hub) Reach(ctx context.Context, from, to, target string) (string, error) {
	consumer, err := h.beside(ctx, from)
	if err != nil {
		return "", err
	}
	producer, err := h.beside(ctx, to)
	if err != nil {
		return "", err
	}
	if consumer == producer {
		return target, nil
	}
	if _, err := producer.get(ctx); err != nil {
		return "", err
	}
	err = producer.do(ctx, func(c *agent.Client) error {
		return c.Expose(ctx, agent.Exposure{Target: target, Block: from, Name: consumer.name})
	})
	if err != nil {
		return "", fmt.Errorf("open %s of %s to %s: %w", target, to, from, err)
	}
	via, err := producer.via()
	if err != nil {
		return "", err
	}
	var address string
	err = consumer.do(ctx, func(c *agent.Client) (err error) {
		address, err = c.Forward(ctx, agent.Forward{Block: to, Target: target, Via: via, Name: producer.name})
		return err
	})
	if err != nil {
		return "", fmt.Errorf("give %s of %s an address beside %s: %w", target, to, from, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	r, here := route{from, to, target}, producer == h.relay
	if old, known := h.routes[r]; known && old == here {
		return address, nil
	}
	h.routes[r] = here
	return address, h.keepRoutes()
}

// beside is the agent on the machine of a block: that of its job, else the relay of this machine.
func (h *Hub) beside(ctx context.Context, block string) (*peer, error) {
	h.mu.Lock()
	p := h.current[block]
	h.mu.Unlock()
	if p != nil {
		return p, nil
	}
	return h.local(ctx)
}

// reroute leads the routes to and from an agent that has connected: it may be a new one, or be reached at another
// address than before, and it may have been away when another one changed.
func (h *Hub) reroute(p *peer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for r, here := range h.routes {
		to := h.current[r.to]
		if here {
			to = h.relay
		}
		from := h.current[r.from]
		if from == nil {
			from = h.relay
		}
		if to == nil || p != to && p != from {
			continue
		}
		h.group.Go(func() {
			ctx, cancel := context.WithTimeout(h.ctx, helloTimeout)
			defer cancel()
			_, _ = h.Reach(ctx, r.from, r.to, r.target) // one that is not connected is told when it is
		})
	}
}

// The relay is the agent of this machine. It carries connections between blocks without an executor and those of other
// machines, in a process of its own, so that they live on when the engine is killed.

// relayDir is where the relay has its files, in the run directory.
const relayDir = "relay"

// relayRecord is what a later engine finds the relay by.
type relayRecord struct {
	Job     executor.Key `json:"job"`
	Program proc.Handle  `json:"program"`
}

func readRelay(run string) (relayRecord, error) {
	var r relayRecord
	data, err := private.ReadFile(filepath.Join(run, relayDir, "relay.json"), 1<<20)
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	return r, err
}

// local returns the relay; it is started, or taken over from an earlier engine.
func (h *Hub) local(ctx context.Context) (*peer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.relay != nil {
		return h.relay, nil
	}
	p, err := h.startRelay(ctx)
	if err != nil {
		return nil, fmt.Errorf("start the relay of this machine: %w", err)
	}
	h.relay = p
	return p, nil
}

// startRelay is called with the lock held.
func (h *Hub) startRelay(ctx context.Context) (*peer, error) {
	dir := filepath.Join(h.run, relayDir)
	if err := private.Dir(dir); err != nil {
		return nil, err
	}
	// Random, so that the certificate of an earlier one is worth nothing.
	k := executor.Key{Run: h.id, Block: relayDir + "-" + rand.Text(), Attempt: 1}
	p := h.expectLocked(k, 1)[0]
	credentials, err := h.authority.issue(p.name)
	if err != nil {
		return nil, err
	}
	listen := "0.0.0.0"
	if h.listeners[false] == nil { // all agents are on this machine
		listen = "127.0.0.1"
	}
	path := filepath.Join(dir, "agent.json")
	err = agent.WriteJSON(path, agent.Bootstrap{Format: agent.BootstrapFormat, Job: k, Credentials: credentials,
		Engine: filepath.Join(h.run, addressFile), Listen: listen, Patience: connectPatience})
	if err != nil {
		return nil, err
	}
	argv, err := Program(path)
	if err != nil {
		return nil, err
	}
	program, err := proc.Start(ctx, proc.Spec{Name: "relay", Argv: argv, Dir: dir, LogDir: dir, Session: true})
	if err != nil {
		return nil, err
	}
	err = agent.WriteJSON(filepath.Join(dir, "relay.json"), relayRecord{Job: k, Program: program.Handle()})
	if err != nil {
		return nil, errors.Join(err, program.Stop(ctx, 0))
	}
	return p, nil
}

// EndRelay ends the relay of a run, if there is one.
func EndRelay(ctx context.Context, run string) error {
	r, err := readRelay(run)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find the relay of the run: %w", err)
	}
	program, err := proc.Adopt(r.Program)
	if err == nil {
		err = program.Stop(ctx, 5*time.Second)
	}
	if err != nil && !errors.Is(err, proc.ErrGone) {
		return fmt.Errorf("end the relay of the run: %w", err)
	}
	if err := os.RemoveAll(filepath.Join(run, relayDir)); err != nil {
		return fmt.Errorf("end the relay of the run: %w", err)
	}
	return nil
}
