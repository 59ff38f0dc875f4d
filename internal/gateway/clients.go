package gateway

import (
	"strings"
	"sync"
	"time"
)

// maxClients bounds the clients that are counted separately; further ones are counted together as "other".
const maxClients = 256

// maxClientName is how many bytes of a client's name are kept. Names are never deleted, and a header may be a megabyte
// long.
const maxClientName = 256

// clients counts requests by client, so that an environment that makes none can be found.
type clients struct {
	mu     sync.Mutex
	byName map[string]*client
}

type client struct {
	requests, failures, tokens uint64
	inflight                   int
	last                       time.Time
}

func (s *clients) begin(name string, now time.Time) *client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(name) > maxClientName {
		name = strings.ToValidUTF8(strings.Clone(name[:maxClientName]), "")
	}
	c := s.byName[name]
	if c == nil {
		if len(s.byName) >= maxClients {
			name = "other"
		}
		if c = s.byName[name]; c == nil {
			c = &client{}
			s.byName[name] = c
		}
	}
	c.requests++
	c.inflight++
	c.last = now
	return c
}

func (s *clients) end(c *client, tokens, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.inflight--
	c.tokens += uint64(tokens)
	if status >= 400 {
		c.failures++
	}
}

// snapshot returns the counts by name and the time of the last request of all.
func (s *clients) snapshot() (map[string]ClientStatus, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var last time.Time
	out := make(map[string]ClientStatus, len(s.byName))
	for name, c := range s.byName {
		out[name] = ClientStatus{Requests: c.requests, Failures: c.failures, OutputTokens: c.tokens, InFlight: c.inflight,
			LastRequest: c.last}
		if c.last.After(last) {
			last = c.last
		}
	}
	return out, last
}
