package web

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/recipe-rl/recipe/internal/peer"
)

// crowd is a listener with a bound on its connections. When the bound is reached, a new connection takes the place of
// the one that has waited longest without a request: whoever opens connections and says nothing, or sends headers
// byte by byte, cannot keep others out. A connection whose body has come for longer than the time for headers comes
// next, and one that has taken nothing of its answer for as long. Other requests that are being answered keep their
// place; when all do, a new connection waits. Connections without a request have a bound of their own, below the number
// of files that the process may have open: it needs some to answer the others.
//
// Among connections without a request, those of other users of the machine lose their place first: another user who
// opens connections faster than requests come would else end the idle connections of this user's programs.
type crowd struct {
	net.Listener
	limit   int
	waiting int           // the bound on connections without a request; 0: limit
	patient time.Duration // how long a body may come, or an answer wait, before its connection can lose its place
	// foreign reports whether another user of the machine has opened a connection
	foreign func(net.Conn) bool

	mu     sync.Mutex
	room   sync.Cond // signaled when a connection ends or can lose its place
	places map[*place]struct{}
	quiet  int // how many of them have no request
	closed bool
}

// place is one connection of a crowd.
type place struct {
	net.Conn
	crowd *crowd
	once  sync.Once
	// when the write of a part of an answer began that has not ended, in nanoseconds since 1970; 0: there is none
	writing atomic.Int64

	// guarded by the crowd's mutex
	known     bool      // the server tells what it does; else it keeps its place
	asked     bool      // foreign has a value: it is looked up when a connection must lose its place
	foreign   bool      // another user of the machine has opened it
	since     time.Time // without a request
	gone      bool      // it has lost its place
	busy      int       // requests that are being answered
	bodySince time.Time // of the body that is being read; zero: none
}

func newCrowd(l net.Listener, limits Limits) *crowd {
	c := &crowd{Listener: l, limit: limits.Connections, waiting: limits.waiting, patient: limits.Header,
		foreign: ofAnotherUser, places: map[*place]struct{}{}}
	c.room.L = &c.mu
	return c
}

// mostLookUps bounds the owners that are looked up for one new connection.
const mostLookUps = 16

// ofAnotherUser is true also of a connection whose owner cannot be found because it has ended.
func ofAnotherUser(conn net.Conn) bool { return peer.Check(conn) != nil }

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
			timer := time.AfterFunc(wait, c.room.Broadcast)
			c.room.Wait()
			timer.Stop()
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

// longest is the connection that loses its place; nil: none can, and one may after wait.
func (c *crowd) longest() (victim *place, wait time.Duration) {
	var stuck *place
	var since time.Time // it is stuck
	lookUps := mostLookUps
	for p := range c.places {
		if p.busy == 0 && !p.asked && lookUps > 0 {
			lookUps--
			p.asked, p.foreign = true, c.foreign(p.Conn)
		}
		switch {
		case !p.known:
		case p.busy == 0:
			if victim == nil || p.goesBefore(victim) {
				victim = p
			}
		default:
			if at := p.stuckSince(); !at.IsZero() && (stuck == nil || at.Before(since)) {
				stuck, since = p, at
			}
		}
	}
	switch {
	case victim != nil:
		return victim, 0
	case stuck == nil: // one may begin to be
		return nil, c.patient
	}
	if wait = c.patient - time.Since(since); wait <= 0 {
		return stuck, 0
	}
	return nil, wait
}

// goesBefore reports whether a connection without a request loses its place before another one.
func (p *place) goesBefore(other *place) bool {
	if p.foreign != other.foreign {
		return p.foreign
	}
	return p.since.Before(other.since)
}

// stuckSince is since when the client has sent a body, or taken nothing of an answer; zero: neither. It is called with
// the crowd's mutex held.
func (p *place) stuckSince() time.Time {
	if at := p.writing.Load(); at != 0 && (p.bodySince.IsZero() || time.Unix(0, at).Before(p.bodySince)) {
		return time.Unix(0, at)
	}
	return p.bodySince
}

// write writes a part of an answer.
func (p *place) write(part func() (int, error)) (int, error) {
	if p == nil {
		return part()
	}
	p.writing.Store(time.Now().UnixNano())
	defer p.writing.Store(0)
	return part()
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
