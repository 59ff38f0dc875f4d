package trajectories

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/internal/promtext"
	"github.com/recipe-rl/recipe/internal/redact"
	"github.com/recipe-rl/recipe/internal/samples"
	"github.com/recipe-rl/recipe/plugins/trajectories/store"
)

// Server is the trajectory API. Its handler may be used by any HTTP server; Serve is one with sensible limits.
type Server struct {
	cfg       Config
	state     *state
	pool      scratches
	timings   *promtext.Histogram
	watchers  watchers
	encoders  encoders
	inflaters inflaters
	memory    *memory
}

// Open reads back what the store holds and returns a server that is ready for requests. The error says what is wrong
// with the configuration or the store and what to do about it.
func Open(ctx context.Context, cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s, err := openStore(ctx, cfg)
	if err != nil {
		return nil, err
	}
	var record *samples.Writer
	if cfg.Samples != "" {
		if record, err = samples.NewWriter(cfg.Samples, cfg.SamplesLimits, cfg.SamplesLost); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	b, err := newState(ctx, cfg, s)
	if err != nil {
		return nil, errors.Join(err, s.Close(), record.Close())
	}
	b.record = record
	return &Server{
		cfg:     cfg,
		state:   b,
		memory:  newMemory(cfg.MaxInflightBytes),
		timings: promtext.NewHistogram("route", latencies),
	}, nil
}

func openStore(ctx context.Context, cfg Config) (store.Store, error) {
	switch {
	case cfg.Store == "memory":
		return store.NewMemory(), nil
	case cfg.Store == "disk" && cfg.Dir == "":
		return nil, errors.New("trajectories: the disk store needs a folder: set dir (--dir)")
	case cfg.Store == "disk" && cfg.Existing:
		if _, err := os.Stat(filepath.Join(cfg.Dir, "index.db")); err != nil {
			return nil, fmt.Errorf("trajectories: %s holds no trajectory store: %w", cfg.Dir, err)
		}
		return store.OpenDisk(cfg.Dir, cfg.disk())
	case cfg.Store == "disk":
		return store.OpenDisk(cfg.Dir, cfg.disk())
	}
	return nil, fmt.Errorf("trajectories: store is %q, expected \"disk\" or \"memory\"", redact.Text(cfg.Store))
}

// SetPolicyVersion sets the policy version that the trainer has reached, like POST /policy_version.
func (s *Server) SetPolicyVersion(ctx context.Context, version int64) error {
	return s.state.setVersion(ctx, version, nil, "")
}

// Serve answers requests on ln until ctx ends or Close is called, then lets those under way finish for a few seconds.
// It refuses to serve on an address that is not loopback when no token is set, unless the configuration is insecure.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	if err := s.cfg.checkAddress(ln.Addr()); err != nil {
		return errors.Join(err, ln.Close())
	}
	limits := s.cfg.limits()
	server := limits.NewServer(s.Handler())
	server.ErrorLog = slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelWarn)
	failed := make(chan error, 1)
	go func() { failed <- limits.ServeTLS(server, ln, s.cfg.TLS) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving the trajectory API on %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := server.Shutdown(stop)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	<-failed
	return err
}

// Close finishes pending writes and releases the store. The server must not be used after it.
func (s *Server) Close(ctx context.Context) error {
	closed := make(chan error, 1)
	go func() { closed <- errors.Join(s.state.store.Close(), s.state.record.Close()) }()
	select {
	case err := <-closed:
		return err
	case <-ctx.Done():
		return fmt.Errorf("closing the trajectory store: %w", context.Cause(ctx))
	}
}

// urlOf is the URL for environments and trainers, with the token in its path: unmodified clients accept only a URL.
func urlOf(scheme, address, token string) string {
	url := scheme + "://" + address
	if token != "" {
		url += "/t/" + token
	}
	return strings.TrimSuffix(url, "/")
}
