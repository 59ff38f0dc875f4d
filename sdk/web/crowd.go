package web

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// crowd is a listener with a bound on its connections. When the bound is reached, a new connection takes the place of
// the one that has waited longest without a request: whoever opens connections and says nothing, or sends headers
// byte by
// byte, cannot keep others out. A connection whose body has come for longer than the time for headers comes next. One
// whose request is being answered keeps its place; when all are, a new one waits. Connections without a request have a
// bound of their own, below the number of files that the process may have open: it needs some to answer the others.
type crowd struct {
	net.Listener
	limit   int
	waiting int           // the bound on connections without a request; 0: limit
	patient time.Duration // how long a body may come before its connection can lose its place

	mu     sync.Mutex
	room   sync.Cond // signalled when a connection ends or can lose its place
	places map[*place]struct{}
	quiet  int // how many of them have no request
	closed bool
}

// place is one connection of a crowd.
type place struct {
	net.Conn
	crowd *crowd
	once  sync.Once

	// guarded by the crowd's mutex
	known     bool      // the server tells what it does; else it keeps its place
	since     time.Time // without a request
	gone      bool      // it has lost its place
	busy      int       // requests that are being answered
	bodySince time.Time // of the body that is being read; zero: none
}

func newCrowd(l net.Listener, limits Limits) *crowd {
	c := &crowd{Listener: l, limit: limits.Connections, waiting: limits.waiting, patient: limits.Header,
		places: map[*place]struct{}{}}
	c.room.L = &c.mu
	return c
}

// Accept implements net.Listener.
func (c *crowd) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	p := &place{Conn: conn, crowd: c, since: time.Now()}
	c.mu.Lock()
	for !c.closed {
		full := len(c.places) >= c.limit
		if !full && (c.waiting == 0 || c.quiet < c.waiting) {
			break
		}
		victim, wait := c.longest()
		if !full && (victim == nil || victim.busy > 0) {
			break
		}
		if victim == nil {
			var timer *time.Timer
			if wait > 0 {
				timer = time.AfterFunc(wait, c.room.Broadcast)
			}
			c.room.Wait()
			if timer != nil {
				timer.Stop()
			}
			continue
		}
		victim.leave()
		c.mu.Unlock()
		_ = victim.Close()
		c.mu.Lock()
	}
	if c.closed {
		c.mu.Unlock()
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	c.places[p] = struct{}{}
	c.quiet++
	c.mu.Unlock()
	return p, nil
}

// leave gives the place up. It is called with the crowd's mutex held.
func (p *place) leave() {
	if p.gone {
		return
	}
	p.gone = true
	delete(p.crowd.places, p)
	if p.busy == 0 {
		p.crowd.quiet--
	}
}

// longest is the connection that loses its place; nil: none can, and one may after wait, if that is not 0.
func (c *crowd) longest() (victim *place, wait time.Duration) {
	now := time.Now()
	var reading *place
	for p := range c.places {
		switch {
		case !p.known:
		case p.busy == 0:
			if victim == nil || p.since.Before(victim.since) {
				victim = p
			}
		case !p.bodySince.IsZero() && (reading == nil || p.bodySince.Before(reading.bodySince)):
			reading = p
		}
	}
	if victim != nil || reading == nil {
		return victim, 0
	}
	if wait = c.patient - now.Sub(reading.bodySince); wait <= 0 {
		return reading, 0
	}
	return nil, wait
}

// Close implements net.Listener.
func (c *crowd) Close() error {
	c.mu.Lock()
	c.closed = true
	c.room.Broadcast()
	c.mu.Unlock()
	return c.Listener.Close()
}

// Close implements net.Conn.
func (p *place) Close() error {
	p.once.Do(func() {
		p.crowd.mu.Lock()
		p.leave()
		p.crowd.room.Broadcast()
		p.crowd.mu.Unlock()
	})
	return p.Conn.Close()
}

// change changes a place, which may then be one to lose.
func (p *place) change(f func()) {
	if p == nil {
		return
	}
	p.crowd.mu.Lock()
	f()
	p.crowd.room.Broadcast()
	p.crowd.mu.Unlock()
}

// begin and end stand around the answer to a request.
func (p *place) begin() {
	p.change(func() {
		if p.busy++; p.busy == 1 && !p.gone {
			p.crowd.quiet--
		}
	})
}

func (p *place) end() {
	p.change(func() {
		if p.busy--; p.busy == 0 && !p.gone {
			p.crowd.quiet++
		}
		p.since, p.bodySince = time.Now(), time.Time{}
	})
}

type placeKey struct{}

// remember puts the place of a connection into the context of its requests.
func remember(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	p, ok := conn.(*place)
	if !ok {
		return ctx
	}
	p.change(func() { p.known = true })
	return context.WithValue(ctx, placeKey{}, p)
}

// placeOf is the place of a request's connection; nil: it has none.
func placeOf(r *http.Request) *place {
	p, _ := r.Context().Value(placeKey{}).(*place)
	return p
}
