package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// inFlight is one request at one replica. low and high are guarded by Gateway.mu until it is released.
type inFlight struct {
	replica   *replica
	began     time.Time
	sequences int  // that it asks for
	start     int  // policy version of the replica at the start
	low, high int  // policy versions that may have sampled the answer
	pieces    bool // asked for as a stream by the gateway itself
	ctx       context.Context
	cancel    context.CancelCauseFunc
}

// refusal is why a request is not let through.
type refusal struct {
	status int
	kind   string
	reason string
	retry  time.Duration
}

func (r *refusal) Error() string { return r.reason }

// acquire waits until a replica may be asked, and counts the request as in flight there. The error is a *refusal, or
// the context's.
func (g *Gateway) acquire(ctx context.Context, c *call) (*inFlight, error) {
	g.mu.Lock()
	f, why := g.startLocked(ctx, c, g.cfg.Clock.Now())
	if f != nil {
		g.mu.Unlock()
		return f, nil
	}
	if g.waiting >= g.cfg.MaxWaiting {
		g.mu.Unlock()
		return nil, &refusal{http.StatusServiceUnavailable, "too_many_waiting",
			fmt.Sprintf("%d requests are waiting, which is the limit (%s)",
				g.cfg.MaxWaiting, why), 5 * time.Second}
	}
	if g.waiting++; g.waiting == 1 {
		g.waitingSince = g.cfg.Clock.Now()
	}
	g.enterLocked(c)
	f, err := g.waitForStart(ctx, c)
	g.waiting--
	g.leaveLocked(c)
	g.mu.Unlock()
	return f, err
}

// waitForStart is acquire when it has to wait. It is called, and returns, with the lock held.
func (g *Gateway) waitForStart(ctx context.Context, c *call) (*inFlight, error) {
	began := g.cfg.Clock.Now()
	g.startWaiting(c)
	late, stop := g.alarm(c.waitUntil.Sub(began))
	defer func() { stop() }()
	silent, stopSilent := g.silence(c)
	defer func() { stopSilent() }()
	defer func() { g.met.waits.Observe("", g.cfg.Clock.Now().Sub(began).Seconds()) }()
	for {
		changed, turn := g.changed, c.turn
		g.mu.Unlock()
		err := g.waitChange(ctx, changed, turn, late, silent)
		if errors.Is(err, errSilent) {
			err = c.early.comment()
			silent, stopSilent = g.silence(c)
		}
		g.mu.Lock()
		if err != nil && !errors.Is(err, errLate) {
			return nil, err
		}
		f, why := g.startLocked(ctx, c, g.cfg.Clock.Now())
		if f != nil {
			return f, nil
		}
		if left := g.extendLocked(c); err != nil && left > 0 {
			late, stop = g.alarm(left)
			continue
		}
		if err != nil {
			return nil, &refusal{http.StatusServiceUnavailable, "held", fmt.Sprintf("timed out after %s: %s", g.cfg.HoldTimeout,
				why), 10 * time.Second}
		}
	}
}

var (
	errLate   = errors.New("late")
	errSilent = errors.New("the client has got nothing for a while")
)

// silence is an alarm for a call whose client must not wait without a sign; it never comes for other calls.
func (g *Gateway) silence(c *call) (silent chan struct{}, stop func() bool) {
	if c.early == nil {
		return nil, func() bool { return false }
	}
	return g.alarm(silence)
}

// alarm closes the channel after a while.
func (g *Gateway) alarm(after time.Duration) (late chan struct{}, stop func() bool) {
	late = make(chan struct{})
	return late, g.cfg.Clock.AfterFunc(after, func() { close(late) })
}

// extendLocked returns how much longer a request waits for a hold that its owner has renewed meanwhile, or for room at
// an engine that answers others. A pause has no end of its own.
func (g *Gateway) extendLocked(c *call) time.Duration {
	now := g.cfg.Clock.Now()
	switch h := g.hold; {
	case !g.paused.IsZero():
		c.waitUntil = now.Add(g.cfg.HoldTimeout)
	case h == nil && g.fullLocked(c, now):
		c.waitUntil = time.Unix(0, g.sign.Load()).Add(g.cfg.HoldTimeout)
	case h == nil:
		return 0
	default:
		if until := h.renewed.Add(g.cfg.HoldTimeout); until.After(c.waitUntil) {
			c.waitUntil = until
		}
	}
	return c.waitUntil.Sub(now)
}

// waitChange waits for a change, or for the turn of a call in the line. It ends with errLate or errSilent when one of
// these alarms, which may be nil, comes.
func (g *Gateway) waitChange(ctx context.Context, changed, turn, late, silent <-chan struct{}) error {
	select {
	case <-turn:
		return nil
	case <-changed:
		return nil
	case <-silent:
		return errSilent
	case <-late:
		return errLate
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-g.life.Done():
		return &refusal{http.StatusServiceUnavailable, "closing", "the gateway is shutting down", 5 * time.Second}
	}
}

// startLocked picks a replica and counts a request as in flight there, or returns why it cannot.
func (g *Gateway) startLocked(ctx context.Context, c *call, now time.Time) (*inFlight, string) {
	if h := g.hold; h != nil {
		return nil, fmt.Sprintf("requests are held since %s: %s", h.Since.Format(time.RFC3339), h.Reason)
	}
	if !g.paused.IsZero() {
		return nil, fmt.Sprintf("the run is paused since %s: recipe resume lets requests through",
			g.paused.Format(time.RFC3339))
	}
	if g.behindLocked(c) {
		return nil, g.whyFullLocked(now)
	}
	r := g.pickLocked(c, now)
	if r == nil && g.fullLocked(c, now) {
		return nil, g.whyFullLocked(now)
	}
	if r == nil {
		return nil, g.whyNoneLocked(now)
	}
	f := &inFlight{replica: r, began: now, start: r.version, pieces: g.piecewiseLocked(r, c), low: r.version,
		high: max(r.version, r.pending), sequences: c.sequences}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	r.inflight++
	r.served++
	r.limit.began(c)
	c.sent = true
	g.inFlight[f] = struct{}{}
	return f, ""
}

// whyNoneLocked says for each replica why it gets no requests.
func (g *Gateway) whyNoneLocked(now time.Time) string {
	if len(g.replicas) == 0 {
		return "no replica is known yet"
	}
	why := "no replica can answer:"
	for _, r := range g.replicas {
		switch {
		case !r.healthy:
			why += fmt.Sprintf(" %s: %s;", r.ID, r.reason)
		case r.version == UnknownVersion:
			why += fmt.Sprintf(" %s: its weights are unknown: %s;", r.ID, r.reason)
		case r.version != g.version:
			why += fmt.Sprintf(" %s: its weights are of version %d, the policy's version is %d;", r.ID, r.version, g.version)
		case r.suspect.After(now):
			why += fmt.Sprintf(" %s: a connection to it failed a moment ago;", r.ID)
		}
	}
	return why
}

// settle holds an answer back until the weight update in progress at its replica has ended. If that fails, it is
// unknown which weights made the answer: it is dropped, and the request is sent again.
func (g *Gateway) settle(f *inFlight) error {
	for {
		g.mu.Lock()
		pending, changed := f.replica.pending != UnknownVersion, g.changed
		g.mu.Unlock()
		if err := context.Cause(f.ctx); err != nil || !pending {
			return err
		}
		select {
		case <-changed:
		case <-f.ctx.Done():
		}
	}
}

// abortLocked cancels the requests in flight at r, or everywhere if r is nil; see ModeAbort.
func (g *Gateway) abortLocked(r *replica) {
	for f := range g.inFlight {
		if r == nil || f.replica == r {
			f.cancel(errAborted)
		}
	}
}

// release ends the count of a request as in flight and returns the range of versions that may have sampled its answer.
func (g *Gateway) release(f *inFlight) (low, high int) {
	f.cancel(nil)
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, counted := g.inFlight[f]; counted {
		delete(g.inFlight, f)
		f.replica.inflight--
		f.replica.limit.ended(f.sequences)
		g.nextLocked()
		if len(g.inFlight) == 0 && g.hold != nil {
			g.changedLocked()
		}
	}
	return f.low, f.high
}

// versionAt is the version of the weights behind a request in flight at this moment; during an update that is
// the version before it.
func (g *Gateway) versionAt(f *inFlight) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if v := f.replica.version; v != UnknownVersion {
		return v
	}
	return f.low
}

// raiseLocked notes that requests in flight at r may be answered by version from now on.
func (g *Gateway) raiseLocked(r *replica, version int) {
	for f := range g.inFlight {
		if f.replica == r {
			f.high = max(f.high, version)
			f.low = min(f.low, version)
		}
	}
}

// changedLocked wakes all who wait for a change of the state.
func (g *Gateway) changedLocked() {
	close(g.changed)
	g.changed = make(chan struct{})
}
