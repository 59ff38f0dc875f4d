// Package concurrency decides how many sequences an inference engine gets at once, from what the engine reports.
//
// Too few leave the engine's batch half empty. Too many fill its KV cache: it then takes a running sequence out of the
// cache (a preemption) and computes all of its tokens again later.
package concurrency

import (
	"fmt"
	"time"
)

// Usage is what an engine reports about its work.
type Usage struct {
	Cache       float64 // share of the KV cache in use, 0 to 1
	Capacity    float64 // of the KV cache, in tokens; 0: not reported
	Running     int     // sequences that are computed
	Queued      int     // sequences that wait in the engine
	Preemptions float64 // since the engine was started
	Tokens      float64 // computed since then, as the engine counts them; 0: not reported
	Reserves    bool    // it begins a sequence only when the cache will hold the whole of it: a queue costs nothing
}

// Check refuses a report whose numbers cannot be meant: one of them would stay in the averages.
func (u Usage) Check() error {
	const many = 1e15 // more than any engine reports
	for _, c := range []struct {
		what        string
		value, most float64
	}{
		{"share of the KV cache", u.Cache, 2}, {"capacity", u.Capacity, many}, {"tokens", u.Tokens, many},
		{"preemptions", u.Preemptions, many}, {"running sequences", float64(u.Running), many},
		{"queued sequences", float64(u.Queued), many},
	} {
		if !(c.value >= 0 && c.value <= c.most) { // also what is no number
			return fmt.Errorf("%s: got %g, expected a number from 0 to %g", c.what, c.value, c.most)
		}
	}
	return nil
}

// Work is what the sender of the requests knows at the same moment. Sequences are counted, not requests: a request may
// ask for several.
type Work struct {
	InFlight int           // at the engine
	Waiting  bool          // more would be sent if the limit allowed it
	Finished int           // since the controller was made
	Longest  float64       // mean of the most tokens that a sequence may have, prompt included; 0: not known
	Age      time.Duration // mean time since the sequences in flight were sent
}

// The constants were chosen with the simulated engine of the tests, and tried on a GPU (docs/concurrency.md).
const (
	first  = 64  // sequences before anything is known
	least  = 16  // sequences, where Work.Longest decides: most sequences end earlier
	target = .95 // share of the cache that is to be used
	growth = .5  // of the limit, in a time as long as the mean age
	early  = .5  // share of the cache up to which the limit grows before sequences have finished
	leap   = .25 // of the limit between two reports, at most
	// After preemptions the limit becomes the share cut of what runs, and at least the share deepest of what it was.
	cut, deepest = .95, .9
	bear         = .05 // preemptions for each finished sequence that are no reason for a cut: a full cache is worth some
	// Mean ages over which the size of a sequence is averaged, while sizes rise and while they fall. New sequences are
	// short, which does not mean that they stay short.
	rise, fall = 2, 4
	// Queues that an engine may have, as shares of what runs. From a queue an engine fills a free place in its next step,
	// instead of after a message; one that reserves room does not preempt for it.
	queue, reserved = .125, .5
	forget          = 60 // seconds in which the greatest mean age is forgotten
)

// Controller has the limit of one engine. Its methods must not be called concurrently.
type Controller struct {
	limit    int
	most     float64 // of the limit; it grows slowly where the engine keeps up
	learning bool    // too few sequences have finished to know how long they become
	bounded  bool    // the limit follows from the longest sequences that may come
	cutting  bool    // after a cut more sequences than the limit allows are still in flight
	size     float64 // of a sequence, as a share of the cache
	age      float64 // seconds; the greatest mean age of late

	last     time.Time // report; zero: there was none
	counted  float64   // preemptions in it
	finished int       // sequences at that time
}

// New makes a controller for an engine that has not reported yet.
func New() *Controller { return &Controller{most: first, limit: first, learning: true} }

// Limit is how many sequences the engine may have at once, at least 1.
func (c *Controller) Limit() int { return c.limit }

// Seen takes a report of the engine and corrects the limit.
func (c *Controller) Seen(now time.Time, usage Usage, work Work) {
	since := now.Sub(c.last).Seconds()
	if c.last.IsZero() {
		since = 0
	}
	preempted := since > 0 && usage.Preemptions-c.counted > 1+bear*float64(work.Finished-c.finished)
	c.last, c.counted, c.finished = now, usage.Preemptions, work.Finished
	c.age = max(work.Age.Seconds(), c.age*(1-min(1, since/forget)), 1)
	c.measure(usage, since)
	if c.learning {
		c.learn(usage, work)
	}
	queued := queue
	if usage.Reserves {
		queued = reserved
	}
	switch c.cutting = c.cutting && work.InFlight > c.limit; {
	case c.cutting: // it has yet to take effect
	case preempted:
		c.most, c.cutting = max(cut*float64(usage.Running), deepest*float64(c.limit)), true
	case c.learning && usage.Cache > early || !work.Waiting || work.InFlight < c.limit ||
		float64(usage.Queued) > queued*float64(usage.Running):
		// more would not have been sent, or would not have been begun
	default:
		c.most *= 1 + min(leap, growth*since/c.age)
	}
	limit := c.most
	if c.size > 0 {
		room := target / c.size
		if usage.Reserves {
			room *= 1 + reserved
		}
		limit = min(limit, room)
	}
	c.limit = max(1, int(limit))
}

// measure averages the size of a sequence.
func (c *Controller) measure(usage Usage, since float64) {
	if usage.Running == 0 {
		return
	}
	size, over := usage.Cache/float64(usage.Running), rise*c.age
	if c.size == 0 {
		c.size = size
	}
	if size < c.size {
		over = fall * c.age
	}
	c.size += (size - c.size) * min(1, since/over)
}

// learn bounds the limit by the longest sequences that may come, until enough have finished.
func (c *Controller) learn(usage Usage, work Work) {
	if work.Finished >= c.limit {
		c.learning = false
	} else if !c.bounded && usage.Capacity > 0 && work.Longest > 0 {
		c.most, c.bounded = max(least, target*usage.Capacity/work.Longest), true
	}
}
