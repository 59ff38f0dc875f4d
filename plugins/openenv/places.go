package openenv

import (
	"context"
	"sync"
)

// places bound the sessions that are open at once.
type places struct {
	mu     sync.Mutex
	limit  int // 0: none
	used   int
	change chan struct{} // closed when a place is free
}

func newPlaces(limit int) *places { return &places{limit: limit, change: make(chan struct{})} }

// take waits for a place.
func (p *places) take(ctx context.Context) error {
	for {
		p.mu.Lock()
		if p.limit <= 0 || p.used < p.limit {
			p.used++
			p.mu.Unlock()
			return nil
		}
		change := p.change
		p.mu.Unlock()
		select {
		case <-change:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (p *places) free() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used--
	close(p.change)
	p.change = make(chan struct{})
}

// lower bounds the places to what the server allows; true when that is less than before.
func (p *places) lower(limit int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if limit <= 0 || p.limit > 0 && p.limit <= limit {
		return false
	}
	p.limit = limit
	return true
}
