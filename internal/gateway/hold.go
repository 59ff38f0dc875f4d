package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// Mode describes what happens to requests in flight when new ones are held.
type Mode string

const (
	// ModeDrain lets requests in flight finish; Hold returns after the last one.
	ModeDrain Mode = "drain"
	// ModeKeep keeps requests in flight: the engine pauses them itself and continues with the new weights. Their answers
	// carry the range of versions that may have sampled them.
	ModeKeep Mode = "keep"
	// ModeAbort cancels requests in flight at the engine. Those that had not begun to answer are sent again after the
	// hold, so their clients only wait longer; a stream that had begun ends with an error event.
	ModeAbort Mode = "abort"
	// ModeNone holds nothing. It is for weight updates that the engine loads between two decoding steps.
	ModeNone Mode = "none"
)

// DefaultLease is the lease of a hold that names none.
const DefaultLease = 2 * time.Minute

var (
	// ErrHeld reports that another owner holds the gateway.
	ErrHeld = errors.New("gateway: held by another owner")
	// ErrNotHeld reports that the named hold is not in force (it may have run out).
	ErrNotHeld = errors.New("gateway: not held")
	// errAborted is why a request in flight is canceled by ModeAbort.
	errAborted = errors.New("gateway: aborted for a weight update")
)

// HoldRequest asks that new requests wait.
type HoldRequest struct {
	// ID of the hold. Empty makes a new one. The ID of the hold in force renews its lease.
	ID string
	// Mode describes what happens to requests in flight. Default: ModeDrain.
	Mode Mode
	// Lease is how long the hold stays in force unless it is renewed; then requests go through again, so that an owner
	// that died between hold and resume blocks nothing for long. It runs from the end of draining. Default: DefaultLease.
	Lease time.Duration
	// Drain bounds the wait for requests in flight in ModeDrain. Default: Lease.
	Drain time.Duration
	// Reason is shown to those who wait, for example "weight update to version 7".
	Reason string
}

// Hold is a hold in force.
type Hold struct {
	ID      string
	Mode    Mode
	Reason  string
	Since   time.Time
	Expires time.Time // zero while draining
}

// hold is a hold in force, guarded by Gateway.mu.
type hold struct {
	Hold
	stop    func() bool // stops the lease's timer
	renewed time.Time   // when its owner last asked for it
	overdue bool        // the lease ran out during an update, which is finished first
}

// Hold makes new requests wait and deals with those in flight as the mode says. It returns when that is done, or fails
// with ErrHeld, or when ctx or the drain time ends before the last request in flight; then nothing is held any more.
func (g *Gateway) Hold(ctx context.Context, q HoldRequest) (Hold, error) {
	if err := g.checkHold(&q); err != nil {
		return Hold{}, err
	}
	started := g.cfg.Clock.Now()
	h, renewed, err := g.beginHold(q, started)
	if err != nil {
		return Hold{}, err
	}
	if !renewed && q.Mode != ModeKeep {
		if err := g.waitIdle(ctx, q); err != nil {
			_ = g.endHold(h.ID, EventResumed, "requests go through: "+err.Error()) // fails if the hold was resumed meanwhile
			return Hold{}, err
		}
	}
	g.mu.Lock()
	if g.hold != h {
		g.mu.Unlock()
		return Hold{}, fmt.Errorf("hold %s ended while it drained: %w", q.ID, ErrNotHeld)
	}
	g.leaseLocked(h, q.Lease)
	out, version := h.Hold, g.version
	g.mu.Unlock()
	if !renewed {
		g.emit(Event{Kind: EventHeld, Hold: out.ID, Version: version, Duration: g.cfg.Clock.Now().Sub(started),
			Message: fmt.Sprintf("requests wait (%s): %s", out.Mode, out.Reason)})
	}
	return out, nil
}

func (g *Gateway) checkHold(q *HoldRequest) error {
	setDefault(&q.Mode, ModeDrain)
	setDefault(&q.Lease, DefaultLease)
	setDefault(&q.Drain, q.Lease)
	setDefault(&q.Reason, "no reason given")
	switch q.Mode {
	case ModeDrain, ModeKeep, ModeAbort:
	default:
		return fmt.Errorf("gateway: hold mode is %q; want %q, %q or %q", q.Mode, ModeDrain, ModeKeep, ModeAbort)
	}
	if q.Lease < 0 || q.Lease > g.cfg.MaxLease {
		return fmt.Errorf("gateway: lease is %s; want at most %s, and renew it by the hold's ID", q.Lease, g.cfg.MaxLease)
	}
	if q.Drain < 0 {
		return fmt.Errorf("gateway: drain time is %s; want more than 0", q.Drain)
	}
	return nil
}

// beginHold begins a hold, or finds the one that q renews.
func (g *Gateway) beginHold(q HoldRequest, now time.Time) (h *hold, renewed bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.hold != nil {
		if q.ID == g.hold.ID {
			return g.hold, true, nil
		}
		return nil, false, fmt.Errorf("%w: hold %s (%s) since %s; resume it, renew it by its ID, or wait for its "+
			"lease to end", ErrHeld, g.hold.ID, g.hold.Reason, g.hold.Since.Format(time.RFC3339))
	}
	if q.ID == "" {
		q.ID = rand.Text()
	}
	g.hold = &hold{Hold: Hold{ID: q.ID, Mode: q.Mode, Reason: q.Reason, Since: now}, renewed: now}
	if q.Mode == ModeAbort {
		g.abortLocked(nil)
	}
	return g.hold, false, nil
}

// leaseLocked starts the lease again.
func (g *Gateway) leaseLocked(h *hold, lease time.Duration) {
	if h.stop != nil {
		h.stop()
	}
	h.overdue = false
	h.renewed = g.cfg.Clock.Now()
	h.Expires = g.cfg.Clock.Now().Add(lease)
	h.stop = g.cfg.Clock.AfterFunc(lease, func() { g.expire(h) })
}

// waitIdle waits until no request is in flight.
func (g *Gateway) waitIdle(ctx context.Context, q HoldRequest) error {
	late := make(chan struct{})
	stop := g.cfg.Clock.AfterFunc(q.Drain, func() { close(late) })
	defer stop()
	for {
		g.mu.Lock()
		left, idle := len(g.inFlight), g.changed
		g.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-idle:
		case <-late:
			return fmt.Errorf("gateway: %d requests still in flight after draining for %s; give a longer drain time, or hold "+
				"with mode %q", left, q.Drain, ModeAbort)
		case <-ctx.Done():
			return fmt.Errorf("gateway: waiting for %d requests in flight: %w", left, context.Cause(ctx))
		case <-g.life.Done():
			return fmt.Errorf("gateway: closed while waiting for %d requests in flight", left)
		}
	}
}

// Resume ends the hold with this ID, or any hold if id is empty, and lets requests through. ErrNotHeld says that it was
// not in force any more: its lease ran out, and requests may have been answered meanwhile. Engines that sleep are woken
// first; one that fails to wake is taken out of service.
func (g *Gateway) Resume(id string) error {
	if g.sleeps() {
		if err := g.wakeAll(id); err != nil {
			return err
		}
	}
	return g.endHold(id, EventResumed, "requests go through")
}

func (g *Gateway) endHold(id string, kind EventKind, message string) error {
	g.mu.Lock()
	h := g.hold
	if h == nil || (id != "" && id != h.ID) {
		g.mu.Unlock()
		return fmt.Errorf("%w by %q", ErrNotHeld, id)
	}
	if h.stop != nil {
		h.stop()
	}
	g.hold = nil
	version := g.version
	g.changedLocked()
	g.mu.Unlock()
	g.emit(Event{Kind: kind, Hold: h.ID, Version: version, Duration: g.cfg.Clock.Now().Sub(h.Since), Message: message})
	return nil
}

// expire ends a hold whose owner did not renew it within its lease.
func (g *Gateway) expire(h *hold) {
	if !g.updating.tryLock() { // the update in progress is finished first; afterUpdate then reads overdue
		g.mu.Lock()
		h.overdue = true
		g.mu.Unlock()
		if !g.updating.tryLock() {
			return
		}
	}
	defer g.updating.unlock()
	g.mu.Lock()
	current := g.hold == h && !g.cfg.Clock.Now().Before(h.Expires)
	g.mu.Unlock()
	if current {
		g.abandon(h)
	}
}

// abandon lets the engines serve again and ends a hold whose owner is gone.
func (g *Gateway) abandon(h *hold) {
	g.met.expired.Add(1)
	g.recover()
	message := fmt.Sprintf("the hold (%s) was neither resumed nor renewed within its lease: requests go through at the "+
		"version before it", h.Reason)
	_ = g.endHold(h.ID, EventHoldExpired, message) // fails only if the owner resumed it at the same moment
}

// recover asks the plugin to let the engines serve again, and excludes all of them if that fails. Called with
// g.updating held.
func (g *Gateway) recover() {
	defer g.setAsleep(0)
	if g.cfg.Recover == nil {
		return
	}
	g.mu.Lock()
	list := make([]Replica, len(g.replicas))
	known := append([]*replica(nil), g.replicas...)
	for i, r := range known {
		list[i] = r.Replica
	}
	g.mu.Unlock()
	ctx, cancel := g.bounded(g.life)
	defer cancel()
	err := g.cfg.Recover(ctx, list)
	if errors.Is(err, ErrNoSleep) { // such an engine is as it was
		return
	}
	if err != nil {
		for _, r := range known {
			g.exclude(r, EventReplicaDown, fmt.Errorf("bringing the engine back after an abandoned hold: %w", err))
		}
		return
	}
	g.verifyAwake(ctx)
}
