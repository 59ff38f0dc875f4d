package gateway

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/recipe-rl/recipe/internal/openfiles"
	"github.com/recipe-rl/recipe/internal/peer"
	"github.com/recipe-rl/recipe/internal/web"
)

// Gateway is one gateway. Make it with New, then call Serve.
type Gateway struct {
	cfg       Config
	keys      keys
	listener  net.Listener
	server    *http.Server
	transport *http.Transport
	records   *records
	sessions  *sessions
	heads     heads
	clients   clients
	met       *metrics
	life      context.Context // ends with Close
	end       context.CancelFunc
	started   time.Time

	sign atomic.Int64 // when an engine last sent anything of an answer, in Unix nanoseconds; 0: never

	waitingSince time.Time // since when a request waits, guarded by mu; undefined when none does

	updating  contextLock  // one weight update or admission at a time; taken before mu
	admitting atomic.Int32 // admissions that wait for updating or hold it
	adopting  atomic.Int32 // calls of Adopt that wait for updating or hold it

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at each change that a waiting request must see
	overtake func()        // ends the admission that holds updating; nil: there is none
	replicas []*replica
	prefixes prefixTable
	// sequences at a replica at once: see SetConcurrency
	concurrency int
	line        *list.List // of calls that wait to be sent, in order
	inFlight    map[*inFlight]struct{}
	waiting     int
	hold        *hold
	kept        map[string]keep // requests that the version stays, by ID
	paused      time.Time       // since when a person holds requests; zero: nobody does
	asleep      int             // level at which the engines sleep; 0: awake
	version     int
	expected    Mode             // of later weight updates, as announced or as the last update had it
	last        *WeightUpdate    // the update that made the current version
	pending     *pendingLogprobs // that an update waits for, or will
	before      baseline         // what engines answered before they were put to sleep, where no update had a check
	names       []string         // names that clients may use for it; replaced, never changed
}

// New checks the configuration and takes the address. Nothing is answered before Serve.
func New(cfg Config) (*Gateway, error) {
	cfg.setDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	ln := cfg.Listener
	if ln == nil {
		var err error
		if ln, err = net.Listen("tcp", cfg.Address); err != nil {
			return nil, fmt.Errorf("gateway: listening on %s: %w; another process may hold the port, or an earlier gateway "+
				"has not ended", cfg.Address, err)
		}
	}
	if err := cfg.checkExposure(ln.Addr()); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	g := &Gateway{
		cfg: cfg, keys: newKeys(cfg.Token, cfg.AdminToken), listener: ln, version: cfg.Version, started: cfg.Clock.Now(),
		concurrency: Unlimited, line: list.New(),
		changed: make(chan struct{}), inFlight: map[*inFlight]struct{}{}, records: newRecords(cfg.RecordTokens),
		sessions: newSessions(cfg.Sessions, cmp.Or(cfg.AdminToken, cfg.Token)),
		clients:  clients{byName: map[string]*client{}}, updating: make(contextLock, 1), last: cfg.Last,
	}
	if cfg.Last != nil {
		g.expected = cfg.Last.Mode
	}
	g.prefixes.seed = maphash.MakeSeed()
	g.life, g.end = context.WithCancel(context.Background())
	g.transport = &http.Transport{
		DialContext:         peer.Dialer(&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}),
		MaxIdleConns:        4096,
		MaxIdleConnsPerHost: 1024,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
	}
	g.met = newMetrics()
	g.server = limits().NewServer(g)
	return g, nil
}

// limits are those of all servers, for more connections: each completion under way has one.
func limits() web.Limits {
	l := web.Defaults()
	l.Connections = 32 << 10
	return l
}

// Addr is the address that the gateway listens on.
func (g *Gateway) Addr() net.Addr { return g.listener.Addr() }

// URL is the root of the gateway, for example "http://127.0.0.1:9001"; append /v1 for OpenAI clients.
func (g *Gateway) URL() string {
	scheme := "http://"
	if g.cfg.TLS != nil {
		scheme = "https://"
	}
	return scheme + g.listener.Addr().String()
}

// Serve answers requests until ctx ends or Close is called, which is no error. When ctx ends, requests in flight are
// cut off; call Close first to let them finish.
func (g *Gateway) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		g.end()
		_ = g.server.Close() // also ends Serve below
	})
	defer stop()
	var watching sync.WaitGroup
	watching.Go(func() { g.watchUsage(g.life) })
	err := g.serve()
	g.end()
	watching.Wait()
	g.sessions.close()
	g.transport.CloseIdleConnections()
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("gateway: serving on %s: %w", g.Addr(), err)
	}
	return nil
}

func (g *Gateway) serve() error {
	listener := openfiles.Wait(g.listener, func(message string) {
		g.emit(Event{Kind: EventNoFiles, Message: "the gateway at " + message})
	})
	return limits().ServeTLS(g.server, listener, g.cfg.TLS)
}

// Close stops accepting requests, refuses those that wait, and lets those in flight finish until ctx ends; what is left
// then is cut off and reported.
func (g *Gateway) Close(ctx context.Context) error {
	g.end()
	g.mu.Lock()
	if g.hold != nil && g.hold.stop != nil {
		g.hold.stop()
	}
	g.mu.Unlock()
	defer g.transport.CloseIdleConnections()
	if err := g.server.Shutdown(ctx); err != nil {
		_ = g.server.Close()
		_ = g.listener.Close()
		return fmt.Errorf("gateway: requests in flight were cut off: %w", err)
	}
	_ = g.listener.Close() // already closed if Serve ran
	return nil
}

// Version is the current policy version.
func (g *Gateway) Version() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.version
}

// SetVersion reports that every replica serves the weights of this policy version, for example at the start from a
// checkpoint. To change weights while requests come in, use UpdateWeights.
func (g *Gateway) SetVersion(version int) error {
	if version < 0 {
		return fmt.Errorf("gateway: policy version is %d; want 0 or more", version)
	}
	g.mu.Lock()
	changed := g.version != version
	if changed {
		g.last = nil // it made another version
	}
	g.version = version
	for _, r := range g.replicas {
		r.version, r.pending = version, UnknownVersion
		g.raiseLocked(r, version)
	}
	g.changedLocked()
	g.mu.Unlock()
	if changed {
		g.emit(Event{Kind: EventVersionChanged, Version: version, Message: fmt.Sprintf("policy version set to %d", version)})
	}
	return nil
}

// SetModels says which names clients may use for the policy. /v1/models answers with them while no replica can, and the
// first one names the policy in requests of the gateway's own making.
func (g *Gateway) SetModels(names ...string) {
	g.mu.Lock()
	g.names = append([]string(nil), names...)
	g.mu.Unlock()
}

// modelNames are the names that clients may use for the policy.
func (g *Gateway) modelNames() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.names
}

// policyModel is a name for requests of the gateway's own making.
func (g *Gateway) policyModel() string {
	if names := g.modelNames(); len(names) > 0 {
		return names[0]
	}
	return ""
}
