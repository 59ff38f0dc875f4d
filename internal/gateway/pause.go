package gateway

import "time"

// SetPaused makes new requests wait for as long as a person wants, or lets them through again. Requests in flight end.
// It is independent of holds: weights are updated meanwhile.
func (g *Gateway) SetPaused(paused bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if paused == !g.paused.IsZero() {
		return
	}
	g.paused = time.Time{}
	if paused {
		g.paused = g.cfg.Clock.Now()
	}
	g.changedLocked()
}
