package store

import (
	"context"
	"fmt"
	"sync"
)

// Memory is a store that is lost when the process ends. Tests and throw-away runs use it.
type Memory struct {
	mu     sync.RWMutex
	bodies map[uint64][]byte
}

var _ Store = (*Memory)(nil)

// NewMemory makes an empty store.
func NewMemory() *Memory { return &Memory{bodies: map[uint64][]byte{}} }

// Scan finds nothing: the store is new.
func (m *Memory) Scan(context.Context, func(uint64, Meta) error) (Snapshot, error) {
	return Snapshot{}, nil
}

// Submit keeps bodies and drops ended ones.
func (m *Memory) Submit(c Change) *Ticket {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range c.Put {
		m.bodies[e.ID] = append([]byte(nil), e.Body...)
	}
	for _, id := range c.End {
		delete(m.bodies, id)
	}
	t := newTicket()
	t.resolve(nil)
	return t
}

// Body appends a group's body to dst.
func (m *Memory) Body(_ context.Context, id uint64, dst []byte) ([]byte, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	body, ok := m.bodies[id]
	if !ok {
		return dst, fmt.Errorf("group %d: %w", id, ErrNotFound)
	}
	return append(dst, body...), nil
}

// Close does nothing.
func (m *Memory) Close() error { return nil }
