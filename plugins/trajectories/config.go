// Package trajectories is a drop-in replacement for the trajectory API (run-api) of NousResearch's Atropos.
//
// Environments post scored groups of completions, trainers fetch batches of an exact number of sequences. Unmodified
// atroposlib environments and trainers find the routes, fields and replies that they know. Behind them, a group is on
// disk before its post is answered, memory does not grow with the queue, batches can be leased and acknowledged, and
// groups know the policy version that sampled them.
package trajectories

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/recipe-rl/recipe/internal/redact"
	"github.com/recipe-rl/recipe/internal/samples"
	"github.com/recipe-rl/recipe/internal/web"
	"github.com/recipe-rl/recipe/plugins/trajectories/store"
	"github.com/recipe-rl/recipe/sdk/trace"
)

// Config says where groups are kept, how many, and who may talk to the server. The zero value is a working server that
// keeps all in memory.
type Config struct {
	// Store is "disk" (default when Dir is set) or "memory" (default otherwise).
	Store string
	// Dir is the folder of the disk store. It is created, and locked while the server is open.
	Dir string
	// Existing refuses to create a disk store where there is none: for tools that only look.
	Existing bool
	// Sync is "always" (default: a post is answered when the disk has it, which survives a power cut) or "never" (when
	// the kernel has it, which survives the death of any process).
	Sync string
	// SegmentBytes is the size at which a file of the disk store's log is full (default 64 MiB).
	SegmentBytes int64

	// Samples is the folder of the record of samples (package internal/samples); empty: none is kept. SamplesLost is
	// called when it cannot be written.
	Samples       string
	SamplesLimits samples.Limits
	SamplesLost   func(error)

	// Room is called with the reason when posts begin to wait for room on the disk, and with "" when there is room again.
	Room func(waiting string)

	// MaxQueueGroups and MaxQueueBytes bound what waits or is leased (defaults 100,000 groups and 64 GiB).
	MaxQueueGroups int
	MaxQueueBytes  int64
	// HoldTimeout is how long a post is held while the queue (or the disk: then it gets a 507) is full before it gets a
	// 503 (default 240 s: clients give up after 300 s and drop the group after three 503s).
	HoldTimeout time.Duration
	// MaxBody bounds a request body after decompression, in bytes (default 256 MiB).
	MaxBody int64

	// MaxInflightBytes bounds the memory that the bodies of all requests under way take together (default 512 MiB). A post
	// that finds it taken for 15 s gets a 503. One body that needs more is let in when it is alone.
	MaxInflightBytes int64
	// MaxConnections bounds the connections at a time (default 4096); others wait to be accepted.
	MaxConnections int

	// MaxStaleness drops a group when the trainer's policy version is more than this ahead of the oldest version that
	// sampled it. Negative means never; a group without a version is never dropped. Zero keeps only on-policy groups; it
	// counts only with LimitStaleness, so that the zero value of Config drops nothing.
	MaxStaleness   int64
	LimitStaleness bool
	// EnvironmentTimeout is the silence after which an environment no longer counts (default 5 min, negative: never). It
	// counts again after its next request.
	EnvironmentTimeout time.Duration
	// Batching is "fair" (default: the weights of environments shape the mix of batches) or "compatible" (strictly in
	// order of arrival, as run-api does).
	Batching string

	// Token, when set, is required of every request: as a bearer token, or as the path prefix /t/<token>/. AdminToken
	// is required of /reset_data; when it is empty, Token serves for that too.
	Token, AdminToken string
	// TLS is what the server serves with, its certificates set. Nil means plain HTTP, which Serve refuses off loopback
	// unless Insecure is set: anyone on the network path could read tokens, prompts and completions, and could post.
	TLS *tls.Config
	// Insecure allows an empty Token, and plain HTTP, off loopback.
	Insecure bool
	// AllowedOrigins are the web pages that may use the server from a browser ("https://viewer.example"). None by default.
	AllowedOrigins []string
	// AllowedHosts are names under which clients may address a server without a token, beside addresses, localhost and the
	// machine's own name.
	AllowedHosts []string
	// Compression is "auto" (default: replies are compressed when the client accepts it and is not on this machine),
	// "always" (whenever the client accepts it) or "never".
	Compression string

	// Trace records the ways of posted groups whose traceparent is sampled, and of a part of those that have none. Nil:
	// nothing is traced.
	Trace *trace.Recorder

	// Completions, when set, finds what the gateway recorded about a completion, to fill missing log-probabilities
	// and policy versions.
	Completions Lookup
	// Log receives messages for the operator. Nil: none are written.
	Log *slog.Logger
}

// Lookup finds the recorded completions that sampled exactly these token ids. prompt is how many of them are the
// prompt. It returns all candidates: the server uses a record only when there is exactly one.
type Lookup func(ctx context.Context, tokens []int64, prompt int) ([]Completion, error)

// Completion is what a gateway recorded about one sampled sequence.
type Completion struct {
	// Logprobs has one value for each sampled token, without the prompt.
	Logprobs []float64
	// MinVersion and MaxVersion are the oldest and newest policy version that sampled its tokens, or negative.
	MinVersion, MaxVersion int64
}

func (c Config) disk() store.DiskOptions {
	return store.DiskOptions{
		Always:       c.Sync == "always",
		SegmentBytes: c.SegmentBytes,
		Wait:         c.HoldTimeout,
		Room:         c.Room,
	}
}

func (c Config) withDefaults() (Config, error) {
	def := func(p *int64, v int64) {
		if *p == 0 {
			*p = v
		}
	}
	groups := int64(c.MaxQueueGroups)
	def(&groups, 100_000)
	c.MaxQueueGroups = int(groups)
	def(&c.MaxQueueBytes, 64<<30)
	def(&c.MaxBody, 256<<20)
	def(&c.MaxInflightBytes, 512<<20)
	def((*int64)(&c.HoldTimeout), int64(240*time.Second))
	def((*int64)(&c.EnvironmentTimeout), int64(5*time.Minute))
	if c.Store == "" {
		c.Store = "memory"
		if c.Dir != "" {
			c.Store = "disk"
		}
	}
	for _, choice := range []struct {
		name  string
		value *string
		of    []string
	}{
		{"sync", &c.Sync, []string{"always", "never"}},
		{"batching", &c.Batching, []string{"fair", "compatible"}},
		{"compression", &c.Compression, []string{"auto", "always", "never"}},
	} {
		if *choice.value == "" {
			*choice.value = choice.of[0]
		}
		if !contains(choice.of, *choice.value) {
			return c, fmt.Errorf("trajectories: %s is %q, expected one of %q", choice.name, *choice.value, choice.of)
		}
	}
	if c.MaxInflightBytes < 0 {
		return c, fmt.Errorf("trajectories: max_inflight_bytes (%d) must not be negative", c.MaxInflightBytes)
	}
	if c.MaxQueueGroups < 0 || c.MaxQueueBytes < 0 || c.MaxBody < 0 {
		return c, fmt.Errorf(
			"trajectories: max_queue_groups (%d), max_queue_bytes (%d) and max_body (%d) must not be negative",
			c.MaxQueueGroups,
			c.MaxQueueBytes,
			c.MaxBody,
		)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Log = slog.New(redact.Handler(c.Log.Handler()))
	return c, nil
}

// limits are those of all servers (internal/web).
func (c Config) limits() web.Limits {
	l := web.Defaults()
	if c.MaxConnections > 0 {
		l.Connections = c.MaxConnections
	}
	return l
}

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}

// loadTLS makes Config.TLS of two PEM files; without any, nothing.
func loadTLS(certificate, key string) (*tls.Config, error) {
	if certificate == "" && key == "" {
		return nil, nil
	}
	if certificate == "" || key == "" {
		return nil, errors.New(
			"trajectories: TLS needs both a certificate and its key: set tls_certificate and tls_key " +
				"(--tls-certificate, --tls-key)",
		)
	}
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf(
			"trajectories: reading the certificate %s and the key %s, expected PEM files that belong together: %w",
			certificate,
			key,
			err,
		)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}

// checkAddress refuses an address that other machines reach without a token or without TLS.
func (c Config) checkAddress(addr net.Addr) error {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || tcp.IP.IsLoopback() {
		return nil
	}
	switch {
	case c.Insecure && c.Token == "":
		c.Log.Warn(
			"the trajectory API listens beyond this machine without a token: anyone who reaches it can read, post "+
				"and delete trajectories",
			"address",
			addr.String(),
		)
	case c.Insecure && c.TLS == nil:
		c.Log.Warn(
			"the trajectory API listens beyond this machine without TLS: anyone on the network path can read the "+
				"token and all trajectories",
			"address",
			addr.String(),
		)
	case c.Token == "":
		return fmt.Errorf(
			"trajectories: %s is not a loopback address and no token is set: anyone could read and delete trajectories; set a "+
				"token (--token), listen on 127.0.0.1, or set insecure (--insecure)",
			addr,
		)
	case c.TLS == nil:
		return fmt.Errorf(
			"trajectories: %s is reachable from other machines and TLS is not set: set tls_certificate and tls_key "+
				"(--tls-certificate, --tls-key), listen on 127.0.0.1, or set insecure (--insecure) where the network is trusted",
			addr,
		)
	}
	return nil
}
