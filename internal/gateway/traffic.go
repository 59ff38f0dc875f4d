package gateway

import (
	"io"
	"time"
)

// Traffic describes the requests in the gateway at a moment, to explain why none proceeds.
type Traffic struct {
	InFlight int       // requests at the engine
	Oldest   time.Time // when the oldest of them was sent
	Sign     time.Time // when the engine last sent anything of an answer; zero: never
	Waiting  int       // requests that wait to be sent
	Since    time.Time // since when some are waiting
	Why      string    // what they wait for
	Full     bool      // the engine has as many sequences as it may
	Held     bool      // by a weight update, or because the engine sleeps
	Reason   string    // of the hold
	HeldFrom time.Time
	Paused   bool // by a person
}

// Traffic returns what goes through the gateway now.
func (g *Gateway) Traffic() Traffic {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := Traffic{InFlight: len(g.inFlight), Waiting: g.waiting, Since: g.waitingSince,
		Paused: !g.paused.IsZero()}
	for f := range g.inFlight {
		if p.Oldest.IsZero() || f.began.Before(p.Oldest) {
			p.Oldest = f.began
		}
	}
	if at := g.sign.Load(); at != 0 {
		p.Sign = time.Unix(0, at)
	}
	if h := g.hold; h != nil {
		p.Held, p.Reason, p.HeldFrom = true, h.Reason, h.Since
	}
	if g.waiting > 0 && g.hold == nil && !p.Paused {
		now := g.cfg.Clock.Now()
		if p.Full = g.fullLocked(&call{sequences: 1}, now); p.Full {
			p.Why = g.whyFullLocked(now)
		} else {
			p.Why = g.whyNoneLocked(now)
		}
	}
	return p
}

// noteSign records that the engine has sent something.
func (g *Gateway) noteSign() { g.sign.Store(g.cfg.Clock.Now().UnixNano()) }

// progressBody records each piece of an answer's body as progress of the engine, once the piece has been processed:
// when the reader asks for the next one.
type progressBody struct {
	io.ReadCloser
	g     *Gateway
	piece bool // the previous Read returned one
}

func (b *progressBody) Read(p []byte) (int, error) {
	if b.piece {
		b.g.noteSign()
	}
	n, err := b.ReadCloser.Read(p)
	b.piece = n > 0
	return n, err
}
