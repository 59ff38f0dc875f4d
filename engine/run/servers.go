package run

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk/proxy"
)

// servers asks external servers whether they are there. Many blocks may name one server: it is asked once for all of
// them.
type servers struct {
	http *http.Client

	mu    sync.Mutex
	known map[server]*answer
}

type server struct{ url, key string }

// answer is the newest one of a server.
type answer struct {
	mu  sync.Mutex // held while it is asked
	at  time.Time
	err error
}

func newServers() *servers {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = proxy.Of
	t.MaxIdleConns = 0 // no bound: a connection is kept for each server
	return &servers{http: &http.Client{Transport: t}, known: map[server]*answer{}}
}

func (s *servers) close() { s.http.CloseIdleConnections() }

// check asks the server, or says what it answered a moment ago: less than a quarter of the interval at which a block
// asks.
func (s *servers) check(ctx context.Context, url, key string, h decode.Health) error {
	s.mu.Lock()
	a := s.known[server{url, key}]
	if a == nil {
		a = &answer{}
		s.known[server{url, key}] = a
	}
	s.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.at.IsZero() && time.Since(a.at) < h.Interval/4 {
		return a.err
	}
	err := s.ask(ctx, url, key, h.Timeout)
	if ctx.Err() == nil { // else it says nothing about the server
		a.at, a.err = time.Now(), err
	}
	return err
}

// ask asks the server for anything: every answer below 500 shows that it is there.
func (s *servers) ask(ctx context.Context, url, key string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if strings.HasSuffix(url, "/v1") {
		url += "/models"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("call %s: %w", url, err)
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return fmt.Errorf("call %s: %w", url, err)
	}
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection can be used again
	_ = resp.Body.Close()
	if resp.StatusCode >= http.StatusInternalServerError || resp.StatusCode == http.StatusUnauthorized {
		return fmt.Errorf("call %s: unexpected status %s", url, resp.Status)
	}
	return nil
}
