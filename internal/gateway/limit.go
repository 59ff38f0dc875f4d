package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/internal/concurrency"
)

// The gateway sends an engine no more sequences at once than its KV cache holds (package concurrency) or its owner
// allows. Further requests wait here, in the order in which they came.

// Usage is what an engine reports about its work.
type Usage = concurrency.Usage

// Unlimited is a concurrency: requests are sent as they come.
const Unlimited = -1

// ErrAway is the error of a question to an engine that is being started: it says nothing about what the engine reports.
var ErrAway = errors.New("the engine is being started")

const (
	usageEvery = time.Second // between two questions to an engine about its load
	usageTries = 5           // questions without a usable answer, before the first report: then there is no limit
)

// limit is how many sequences a replica may have at once. Its fields are guarded by Gateway.mu.
type limit struct {
	control   *concurrency.Controller
	usage     Usage   // last report
	reported  bool    // there was one
	failed    int     // answers without usable figures, before the first report
	sequences int     // in flight
	finished  int     // sequences
	longest   float64 // tokens of a sequence, as requests bound them; see concurrency.Work
}

// SetConcurrency sets how many sequences a replica gets at once: a number, Unlimited, or 0 for as many as its cache
// holds by what it reports (Config.Usage).
func (g *Gateway) SetConcurrency(sequences int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.concurrency = sequences
	g.nextLocked()
}

// limitLocked is how many sequences r may have at once; 0: any number.
func (g *Gateway) limitLocked(r *replica) int {
	switch {
	case g.concurrency > 0:
		return g.concurrency
	case g.concurrency == Unlimited || g.cfg.Usage == nil || !r.limit.reported && r.limit.failed >= usageTries:
		return 0
	}
	return r.limit.control.Limit()
}

// roomLocked reports whether r may be sent a call now. A call for more sequences than the limit goes alone.
func (g *Gateway) roomLocked(r *replica, c *call) bool {
	most := g.limitLocked(r)
	return c == nil || c.sequences == 0 || most == 0 || r.limit.sequences == 0 || r.limit.sequences+c.sequences <= most
}

// began counts the sequences of a call that is sent.
func (l *limit) began(c *call) {
	l.sequences += c.sequences
	if c.sequences > 0 && c.longest > 0 {
		if l.longest == 0 {
			l.longest = c.longest
		}
		l.longest += (c.longest - l.longest) / 16
	}
}

func (l *limit) ended(sequences int) {
	l.sequences -= sequences
	l.finished += sequences
}

// enterLocked puts a call that cannot be sent now into the line. One that was sent before goes to its head.
func (g *Gateway) enterLocked(c *call) {
	if c.sequences == 0 {
		return
	}
	c.turn = make(chan struct{}, 1)
	if c.sent {
		c.place = g.line.PushFront(c)
	} else {
		c.place = g.line.PushBack(c)
	}
}

// leaveLocked takes a call out of the line.
func (g *Gateway) leaveLocked(c *call) {
	if c.place == nil {
		return
	}
	g.line.Remove(c.place)
	c.place, c.turn = nil, nil
	g.nextLocked()
}

// behindLocked reports whether calls that came earlier wait for room.
func (g *Gateway) behindLocked(c *call) bool {
	return c.sequences > 0 && g.line.Len() > 0 && g.line.Front() != c.place
}

// nextLocked wakes the first call in the line.
func (g *Gateway) nextLocked() {
	if e := g.line.Front(); e != nil {
		select {
		case e.Value.(*call).turn <- struct{}{}:
		default: // it has been woken
		}
	}
}

// fullLocked reports whether a replica that could answer has no room.
func (g *Gateway) fullLocked(c *call, now time.Time) bool {
	for _, r := range g.replicas {
		if g.eligibleLocked(r, now) && !g.roomLocked(r, c) {
			return true
		}
	}
	return false
}

// whyFullLocked explains why there is no room for a call.
func (g *Gateway) whyFullLocked(now time.Time) string {
	sequences, most := 0, 0
	for _, r := range g.replicas {
		if g.eligibleLocked(r, now) {
			sequences, most = sequences+r.limit.sequences, most+g.limitLocked(r)
		}
	}
	if g.concurrency > 0 {
		return fmt.Sprintf("%d sequences are at the engine, which gets at most %d at once (concurrency)", sequences, most)
	}
	return fmt.Sprintf("%d sequences are at the engine, whose KV cache has room for %d", sequences, most)
}

// watchUsage asks the engines for their load until ctx ends.
func (g *Gateway) watchUsage(ctx context.Context) {
	if g.cfg.Usage == nil {
		return
	}
	for ctx.Err() == nil {
		g.askUsage(ctx)
		tick, stop := g.alarm(usageEvery)
		select {
		case <-tick:
		case <-ctx.Done():
			stop()
		}
	}
}

// askUsage asks each engine that may get requests for its load, if it has work or has never reported.
func (g *Gateway) askUsage(ctx context.Context) {
	g.mu.Lock()
	var ask []*replica
	now := g.cfg.Clock.Now()
	for _, r := range g.replicas {
		if g.concurrency != Unlimited && g.hold == nil && g.eligibleLocked(r, now) &&
			(r.limit.sequences > 0 || !r.limit.reported) {
			ask = append(ask, r)
		}
	}
	g.mu.Unlock()
	var wg sync.WaitGroup
	for _, r := range ask {
		wg.Go(func() {
			asking, cancel := context.WithTimeout(ctx, 5*usageEvery)
			defer cancel()
			usage, err := g.cfg.Usage(asking, r.Replica)
			g.mu.Lock()
			silent := g.noteUsageLocked(r, usage, err)
			g.mu.Unlock()
			if silent {
				g.emit(Event{Kind: EventNoUsage, Replica: r.ID, Err: err, Message: fmt.Sprintf(
					"replica %s does not report its load, so it gets requests as they come: %v", r.ID, err)})
			}
		})
	}
	wg.Wait()
}

// noteUsageLocked corrects the limit by a report. Without one it stays as it is. Silent: from now on the engine counts
// as one that does not report.
func (g *Gateway) noteUsageLocked(r *replica, usage Usage, err error) (silent bool) {
	l := &r.limit
	if err = cmp.Or(err, usage.Check()); err != nil {
		if l.reported || errors.Is(err, ErrAway) || neverArrived(err) {
			return false
		}
		l.failed++
		g.nextLocked()
		return l.failed == usageTries
	}
	now := g.cfg.Clock.Now()
	work := concurrency.Work{InFlight: l.sequences, Waiting: g.line.Len() > 0, Finished: l.finished, Longest: l.longest}
	if l.sequences > 0 {
		var age time.Duration
		for f := range g.inFlight {
			if f.replica == r {
				age += now.Sub(f.began) * time.Duration(f.sequences)
			}
		}
		work.Age = age / time.Duration(l.sequences)
	}
	l.control.Seen(now, usage, work)
	l.usage, l.reported = usage, true
	g.nextLocked()
	return false
}
