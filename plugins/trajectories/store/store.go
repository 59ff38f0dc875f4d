// Package store keeps groups and the state of the queue so that a crash does not lose them.
//
// A store gets Changes. A change is applied whole or not at all, and when its ticket returns nil it is durable to the
// degree that the store promises. Everything else (packing, buffers, leases) is decided above it.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Entry is a group to keep.
type Entry struct {
	ID   uint64 // unique, growing in order of arrival
	Meta Meta
	Body []byte // the canonical JSON; the store does not look inside
}

// Meta is what the index needs to know about a group.
type Meta struct {
	Env        int   `json:"env"`
	Size       int   `json:"size"`
	Tokens     int   `json:"tokens"`
	Longest    int   `json:"longest"`
	Bytes      int64 `json:"bytes"`
	MinVersion int64 `json:"min_version"`
	MaxVersion int64 `json:"max_version"`
	// Place orders the groups of the queue; 0 means that the group still waits in its environment's buffer.
	Place uint64 `json:"place"`
	// At is when the group arrived, in Unix nanoseconds. It is for display only.
	At int64 `json:"at"`
}

// Batch is a formed batch that was handed out under a lease and is not acknowledged yet.
type Batch struct {
	Number uint64        `json:"number"`          // counts batches, from 1
	Grant  int           `json:"grant"`           // how often it has been handed out
	Lease  time.Duration `json:"lease"`           // how long each grant lasts
	Groups []uint64      `json:"groups"`          // ids, in order
	Early  bool          `json:"early,omitempty"` // it was taken ahead of its step, which is not counted yet
}

// Change is one atomic step.
type Change struct {
	Put     []Entry           // groups that arrived
	Place   map[uint64]uint64 // groups that left their buffer, with their new place in the queue
	Batches []Batch           // batches to remember, replacing those of the same number
	End     []uint64          // groups that are not needed any more: delivered, dropped or deleted
	Ended   []uint64          // numbers of batches that have ended; their groups are named in End
	State   json.RawMessage   // replaces the small state document when not nil
	Keys    []Key             // posts that must be recognized when they are repeated
}

// Key is the mark of a post whose sender may repeat it.
type Key struct {
	Name   []byte `json:"name"`   // at most 64 bytes
	Sum    uint32 `json:"sum"`    // a checksum of what was posted
	Groups int    `json:"groups"` // how many groups it held
}

// KeepKeys is how many keys a store remembers: the newest. It is a number and not a time, because clocks jump.
const KeepKeys = 32768

// Snapshot is what a store holds when it is opened.
type Snapshot struct {
	State   json.RawMessage // nil when there was none
	Batches []Batch         // in order of their numbers
	LastID  uint64          // at least the largest id ever put
	Keys    []Key           // the newest KeepKeys, the oldest first
}

// Store is where groups live until they are trained on.
type Store interface {
	// Scan calls each for every group, in order of their ids, and returns the rest. It is called once, before the
	// first Submit.
	Scan(ctx context.Context, each func(id uint64, m Meta) error) (Snapshot, error)
	// Submit queues a change and returns at once. Changes are applied in the order in which they were submitted;
	// the ticket resolves when this one is durable.
	Submit(c Change) *Ticket
	// Body appends a group's body to dst. The error is ErrNotFound when there is no such group.
	Body(ctx context.Context, id uint64, dst []byte) ([]byte, error)
	// Close waits for what is under way and releases everything.
	Close() error
}

// Ticket is the outcome of a submitted change.
type Ticket struct {
	done chan struct{}
	err  error
}

func newTicket() *Ticket { return &Ticket{done: make(chan struct{})} }

// Failed is the ticket of a change that a store does not even try, for stores that wrap another.
func Failed(err error) *Ticket {
	t := newTicket()
	t.resolve(err)
	return t
}

func (t *Ticket) resolve(err error) {
	t.err = err
	close(t.done)
}

// Wait returns when the change is durable (nil), when it has failed and nothing of it happened, or when ctx ends, in
// which case the outcome is not known yet.
func (t *Ticket) Wait(ctx context.Context) error {
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
		return fmt.Errorf("waiting for the trajectory store to confirm a write: %w", context.Cause(ctx))
	}
}

// ErrNotFound reports that no group has the id.
var ErrNotFound = errors.New("the store has no group of this id")

// ErrFull reports that the medium has no room. Nothing is lost; commits work again once there is room.
var ErrFull = errors.New("no space left where the trajectories are stored")
