package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/trace"
)

// Config describes a gateway. Only Address (or Listener) is needed on loopback; off loopback Token and TLS are needed
// too.
type Config struct {
	// Address is the host:port to listen on, for example "127.0.0.1:9001". Use the same one after a restart: environments
	// keep it. Port 0 takes a free one (see Gateway.Addr).
	Address string
	// Listener is used instead of Address when it is set. The gateway closes it.
	Listener net.Listener
	// Token lets a client use the data routes: "Authorization: Bearer TOKEN", or the path prefix /t/TOKEN/. Empty means
	// that no token is required, which New refuses off loopback unless Insecure is set.
	Token string
	// AdminToken lets a client use /recipe/v1/… (it also opens the data routes). Empty closes the control routes over
	// HTTP; the methods of Gateway work all the same.
	AdminToken string
	// TLS is what the gateway serves with, its certificates set. Nil means plain HTTP, which New refuses off loopback
	// unless Insecure is set: anyone on the network path could read tokens, prompts and completions, and load weights.
	TLS *tls.Config
	// Insecure allows an empty Token, and plain HTTP, off loopback.
	Insecure bool
	// RecordTokens bounds the record: the oldest completions are forgotten when more output tokens than this are held.
	// 8 bytes a token. Default: 4,000,000.
	RecordTokens int
	// CacheSalt says whether to add cache_salt, the policy version, to every completion that is asked for, so that an
	// engine such as vLLM never continues a prompt from keys and values of older weights. Nil: no.
	CacheSalt func() bool
	// SaltedRoutes are the routes beside /v1/completions and /v1/chat/completions on which the engine reads that salt;
	// false: not known yet. With CacheSalt no other route that may use the cache is proxied. Nil: there are none.
	SaltedRoutes func() ([]string, bool)
	// CachedPrompt is how many tokens a prompt needs for the engine to keep a part of it in a prefix cache. With it, the
	// check of an update also continues the fixed text through that cache, so that a cache that the update did not empty
	// is noticed. Nil or 0: not checked.
	CachedPrompt func() int
	// Sessions is the folder in which sessions are kept, so that they outlive the process. Empty: there are none.
	Sessions string
	// MaxBodyBytes bounds a request body. Default: 64 MiB.
	MaxBodyBytes int64
	// MaxResponseBytes bounds an answer that is buffered to be stamped and recorded; a longer one is passed through with
	// its stamp in the header only. Default: 256 MiB.
	MaxResponseBytes int64
	// HoldTimeout is how long a request waits for a hold to end or a replica to come up before it gets 503 with
	// Retry-After. The time starts again when the hold's owner renews it: a training step on a shared GPU may take long.
	// Default: 10 minutes, which outlasts the start of an engine.
	HoldTimeout time.Duration
	// MaxWaiting bounds the requests that wait at once; further ones get 503 at once. Default: 16384.
	MaxWaiting int
	// MaxLease bounds the lease of a hold. Default: 30 minutes.
	MaxLease time.Duration
	// UpdateTimeout bounds one weight update, all replicas together; half of it may be spent on waiting for a replica when
	// none is up. Default: 10 minutes.
	UpdateTimeout time.Duration
	// Cooldown is how long a replica gets nothing after a connection to it failed. Default: 1 second.
	Cooldown time.Duration
	// Version is the policy version at the start.
	Version int
	// Last is the weight update that made Version, in an earlier attempt of the block. With it an engine that starts with
	// other weights is brought to Version when it is admitted. Nil: unknown.
	Last *WeightUpdate

	// Update loads the weights of u into the replicas, resets their caches, and returns when they would serve them. It is
	// called once for all replicas while requests are held (unless u.Mode is ModeNone), and again for one that is admitted
	// later. It must return when ctx ends. ReplicaErrors say which ones failed; after any other error none of them took
	// the weights. Nil: weight updates are refused.
	Update func(ctx context.Context, replicas []Replica, u WeightUpdate) error
	// Logprobs returns the log-probability of each of tokens given those before it, as replica r computes it; the first,
	// which nothing precedes, is 0. Nil: asked of the engine's /v1/completions with prompt_logprobs, as vLLM answers it.
	Logprobs func(ctx context.Context, r Replica, tokens []int) ([]float64, error)
	// Read reads an answer that replica r has sampled, as the parsers of its model do: calls of tools and reasoning.
	// ErrNotRead, or nil: the gateway reads calls in the form of Hermes and Qwen models.
	Read func(ctx context.Context, r Replica, s Sampled) (Said, error)
	// Adopt takes note of weights without loading them; see Gateway.Adopt. Nil: that is refused.
	Adopt func(w sdk.Weights) error
	// Down says that no replica is up and that Adopt can be called: Update would wait for one that is started again. Nil:
	// it never is.
	Down func() bool
	// Recover brings the engines back to serving the weights that they served, after the lease of a hold ran out (its
	// owner died, perhaps after it had paused the engines or put them to sleep), and when a hold ends under which they
	// sleep. It is called before requests are let through; its error takes every replica out, except ErrNoSleep. Nil:
	// nothing to do.
	Recover func(ctx context.Context, replicas []Replica) error
	// Sleep makes every engine give the memory of its GPU back; Recover, or the next Update, wakes them. Level 1 keeps the
	// weights in the host's memory, level 2 drops them. ErrNoSleep says that they cannot. Nil: Sleep is refused.
	Sleep func(ctx context.Context, level int) error
	// Receiver takes weights that are sent here. Nil: they are refused.
	Receiver Receiver
	// Usage asks an engine for its load, from which follows how many sequences it gets at once; see SetConcurrency. Nil:
	// an engine gets requests as they come.
	Usage func(ctx context.Context, r Replica) (Usage, error)
	// Events is called for each event, from several goroutines. It must return soon and must not call the gateway.
	Events func(Event)
	// Trace records a span of each request whose traceparent is sampled. Nil: none.
	Trace *trace.Recorder
	// Clock replaces the machine's clock in tests.
	Clock Clock
}

func (c *Config) setDefaults() {
	setDefault(&c.RecordTokens, 4_000_000)
	setDefault(&c.MaxBodyBytes, 64<<20)
	setDefault(&c.MaxResponseBytes, 256<<20)
	setDefault(&c.HoldTimeout, 10*time.Minute)
	setDefault(&c.MaxWaiting, 16384)
	setDefault(&c.MaxLease, 30*time.Minute)
	setDefault(&c.UpdateTimeout, 10*time.Minute)
	setDefault(&c.Cooldown, time.Second)
	if c.Events == nil {
		c.Events = func(Event) {}
	}
	if c.Clock == nil {
		c.Clock = systemClock{}
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// check reports all invalid settings at once.
func (c *Config) check() error {
	var errs []error
	if c.Listener == nil && c.Address == "" {
		errs = append(errs, errors.New("gateway: neither Address nor Listener is set; give host:port, for "+
			"example 127.0.0.1:9001"))
	}
	if c.Version < 0 {
		errs = append(errs, fmt.Errorf("gateway: Version is %d; want 0 or more", c.Version))
	}
	if c.Last != nil && c.Last.version() != c.Version {
		errs = append(errs, fmt.Errorf("gateway: Last made policy version %d, Version is %d; want equal, or Last nil",
			c.Last.Version, c.Version))
	}
	if c.Token != "" && c.Token == c.AdminToken {
		errs = append(errs, errors.New("gateway: Token and AdminToken are equal, so every environment could "+
			"replace the weights; use two"))
	}
	return errors.Join(errs...)
}

// checkExposure refuses an address that other machines reach without a token or without TLS.
func (c *Config) checkExposure(addr net.Addr) error {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || tcp.IP.IsLoopback() || c.Insecure {
		return nil
	}
	if c.Token == "" {
		return fmt.Errorf("gateway: %s is reachable from other machines and no Token is set; set one, listen on "+
			"127.0.0.1, or set Insecure", addr)
	}
	if c.TLS == nil {
		return fmt.Errorf("gateway: Address %s is reachable from other machines and TLS is not set; set TLS, listen on "+
			"127.0.0.1, or set Insecure", addr)
	}
	return nil
}
