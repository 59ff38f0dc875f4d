package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/kit/nodes"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/proc"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// Supervisor keeps the replicas of one block alive. It is an inference.Engine with all optional abilities.
type Supervisor struct {
	spec    Spec
	program Program
	block   Block
	host    inference.Host
	stop    context.CancelFunc
	ended   chan struct{} // closed when all replicas have stopped
	err     error         // why, once ended is closed

	updating   sync.Mutex    // held while weights are being loaded into any replica
	announcing sync.Mutex    // held while the host is told of changes, so that it gets them in order
	changed    chan struct{} // makes announce look again

	mu         sync.Mutex
	limits     Limits
	replicas   []*replica
	current    sdk.Weights         // what a restarted replica has to serve
	listed     []inference.Replica // what Replicas last returned
	restarting bool                // an update starts all servers again
	awake      chan struct{}       // closed when servers may be started again; nil: none is held up
	announced  map[string]string   // address of each replica as last passed to the host
}

// Block is what the kit needs of a start request.
type Block struct {
	Dir          string
	Devices      []string // GPUs of the placement
	ControlToken string
	Handle       []byte
	Policy       sdk.Policy
}

// BlockOf takes from a start request what the kit needs.
func BlockOf[C any](r sdk.Request[C]) Block {
	return Block{Dir: r.Dir, Devices: given(r.Placement), ControlToken: r.ControlToken, Handle: r.Handle,
		Policy: r.Policy}
}

// Start starts the replicas and returns at once. Programs of an earlier attempt are adopted, or ended.
func Start(ctx context.Context, spec Spec, program Program, block Block, host inference.Host) *Supervisor {
	s := &Supervisor{
		spec: spec, program: program, block: block, host: host, limits: spec.Limits,
		ended: make(chan struct{}), changed: make(chan struct{}, 1),
		current: sdk.Weights{Version: block.Policy.Version, Path: block.Policy.Weights, Format: block.Policy.Format},
	}
	for i := range max(1, spec.Replicas) * max(1, len(nodes.Addresses())) {
		s.replicas = append(s.replicas, newReplica(s, i))
	}
	endEarlier(ctx, block, host, s.claim)
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	group, ctx := errgroup.WithContext(ctx)
	for _, r := range s.replicas {
		group.Go(func() error { return r.keep(ctx) })
	}
	group.Go(func() error { return s.announce(ctx) })
	go func() {
		defer close(s.ended)
		if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			s.err = err
		}
	}()
	return s
}

// endEarlier ends programs of an earlier attempt that claim does not accept, so that they do not hold memory. Nil
// accepts none.
func endEarlier(ctx context.Context, block Block, host inference.Host, claim func(proc.Handle) bool) {
	var orphans []proc.Handle
	for _, h := range proc.Parse(block.Handle) {
		if claim == nil || !claim(h) {
			orphans = append(orphans, h)
		}
	}
	if err := proc.KillAll(ctx, orphans); err != nil {
		host.Log("warn", err.Error())
	}
}

func (s *Supervisor) claim(h proc.Handle) bool {
	return slices.ContainsFunc(s.replicas, func(r *replica) bool { return r.claim(h) })
}

// Wait returns when the servers have ended for good: the error says why they could not go on, nil that Stop was called.
func (s *Supervisor) Wait() error {
	<-s.ended
	return s.err
}

// Stop ends the servers. It returns when they have ended, or when ctx ends.
func (s *Supervisor) Stop(ctx context.Context) error {
	s.stop()
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop %s: %w", s.spec.Title, context.Cause(ctx))
	}
}

// announce notifies the host when a replica has come or gone.
func (s *Supervisor) announce(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.changed:
		}
		s.announceOnce()
	}
}

// announceOnce tells the host which replicas there are now, and returns when it knows.
func (s *Supervisor) announceOnce() {
	s.announcing.Lock()
	defer s.announcing.Unlock()
	s.mu.Lock()
	var handles []proc.Handle
	var facts Facts
	up := 0
	for _, r := range s.replicas {
		if r.handle.PID != 0 {
			handles = append(handles, r.handle)
		}
		if s.listableLocked(r) {
			up++
			facts = r.facts
		}
	}
	total, restarting := len(s.replicas), s.restarting
	s.mu.Unlock()

	s.host.SetHandle(proc.Encode(handles...))
	if restarting {
		return // each server comes back where it was
	}
	s.host.Changed()
	s.mu.Lock()
	s.announced = make(map[string]string, len(s.listed))
	for _, r := range s.listed {
		s.announced[r.ID] = r.URL
	}
	s.mu.Unlock()
	switch {
	case up == 0:
	case up < total:
		s.host.Phase(sdk.Degraded, fmt.Sprintf("%d of %d replicas answer", up, total))
	default: // without the policy version: the text stays, and the next update makes another version
		s.host.Phase(sdk.Ready, s.spec.Title+" "+facts.Version)
	}
}

// listableLocked reports whether a replica may be served. One that answers with broken weights is about to be started
// again.
func (s *Supervisor) listableLocked(r *replica) bool {
	return r.live && (r.version != inference.UnknownVersion || !s.loadableLocked())
}

// Replicas are those that answer. While none does, they are the places where servers will listen, of unknown version:
// they get no requests, but a weight update can wait for them.
func (s *Supervisor) Replicas() []inference.Replica {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.restarting {
		return s.listed
	}
	var live, coming []inference.Replica
	for _, r := range s.replicas {
		switch {
		case s.listableLocked(r):
			live = append(live, r.listing(r.version))
		case r.client != nil:
			coming = append(coming, r.listing(inference.UnknownVersion))
		}
	}
	switch {
	case len(live) > 0:
		s.listed = live
	case s.listed != nil: // not before the first one has answered
		s.listed = coming
	}
	return slices.Clone(s.listed)
}

// Outputs are the outputs of the block, from the facts of a server that answers.
func (s *Supervisor) Outputs() any {
	s.mu.Lock()
	defer s.mu.Unlock()
	var f Facts
	for _, r := range s.replicas {
		if r.live || f.Version == "" {
			f = r.facts
		}
	}
	if len(nodes.Addresses()) > 1 { // no trainer shares memory with all of them
		f.Transports = slices.DeleteFunc(slices.Clone(f.Transports), transport.Name.Tensors)
		f.Reach, f.Machine = nil, ""
	}
	return Outputs{
		Inference: outputs.Inference{
			Model: s.spec.Served, Tokenizer: s.spec.Published, MaxModelLen: f.MaxModelLen,
		},
		Transports: transport.Texts(f.Transports), Reach: f.Reach, Machine: f.Machine, Arithmetic: f.Arithmetic,
		Sleeps: s.spec.SleepMode && f.Sleeps, Devices: s.block.Devices,
	}
}

// facts are those of a replica that answers; false: none does.
func (s *Supervisor) facts() (Facts, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.replicas {
		if r.live {
			return r.facts, true
		}
	}
	return Facts{}, false
}

// CacheSalt implements inference.CacheSalter.
func (s *Supervisor) CacheSalt() bool { return s.spec.CacheSalt }

// SaltedRoutes implements inference.SaltedRouter, by what every server that has been ready has; all run one program.
func (s *Supervisor) SaltedRoutes() ([]string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var routes []string
	known := false
	for _, r := range s.replicas {
		switch {
		case r.facts.Version == "":
		case !known:
			routes, known = slices.Clone(r.facts.Salted), true
		default:
			routes = slices.DeleteFunc(routes, func(route string) bool { return !slices.Contains(r.facts.Salted, route) })
		}
	}
	return routes, known
}

// CachedPrompt implements inference.PromptCacher.
func (s *Supervisor) CachedPrompt() int {
	facts, ok := s.facts()
	if !ok || s.spec.CachedPrompt == nil {
		return 0
	}
	return s.spec.CachedPrompt(facts)
}

// loadableLocked reports whether the current version's weights can be put into a fresh server: they lie on a disk, or
// nothing has been trained yet.
func (s *Supervisor) loadableLocked() bool { return s.current.Version == 0 || s.current.Path != "" }

// notify makes announce look again.
func (s *Supervisor) notify() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// SetLimits applies new limits while the servers run.
func (s *Supervisor) SetLimits(l Limits) {
	s.mu.Lock()
	s.limits = l
	s.mu.Unlock()
	s.host.Changed()
}

func (s *Supervisor) limit() Limits {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limits
}
