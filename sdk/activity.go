package sdk

import (
	"sync"
	"time"
)

// Activity is one thing that a block waits for, or works on. The engine asks for the activities of every block and
// follows them from block to block, so that a run without progress says who waits for whom.
type Activity struct {
	// On is the block that this one waits for: an address, or a pattern such as environment.*.sums or trainer.*.* when the
	// block knows only a part of it. Empty: it is the block's own work and waits for no other block.
	On     string
	What   string // what it is: "batch 113", "Score of 4 completions"
	Detail string // more, for people. It must hold no secret
	Have   int64  // 3 of 64 groups are there
	Want   int64  // 0: nothing is counted
	Unit   string
	Sign   string // what progress would be, in one word: "token" reads "no token for 240 s"
	Remedy string // what a person can do about it when it makes no progress

	Began      time.Time     // zero: now
	Progressed time.Time     // the last progress; zero: none since it began
	Patience   time.Duration // so long without progress is usual for it; 0: the engine's own measure
	Rest       bool          // there is nothing to do, as for a sync block between two publications; no fault by itself
}

// Idle is how long the activity has been without progress.
func (a Activity) Idle(now time.Time) time.Duration {
	last := a.Began
	if a.Progressed.After(last) {
		last = a.Progressed
	}
	return max(0, now.Sub(last))
}

// Ongoing is an activity in progress: what Host.Begin returns. Its methods may be called from any goroutine, and on
// nil.
type Ongoing struct {
	ended func(*Ongoing)
	mu    sync.Mutex
	now   Activity
}

// NewOngoing begins an activity; ended is called by End. Implementations of Host use it, plugins call Host.Begin.
func NewOngoing(a Activity, ended func(*Ongoing)) *Ongoing {
	if a.Began.IsZero() {
		a.Began = time.Now()
	}
	return &Ongoing{ended: ended, now: a}
}

// Now returns the activity with its progress so far.
func (o *Ongoing) Now() Activity {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.now
}

// Progress reports progress. Have counts what is there.
func (o *Ongoing) Progress(have int64, detail string) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now.Have, o.now.Detail, o.now.Progressed = have, detail, time.Now()
}

// End reports that the activity is over.
func (o *Ongoing) End() {
	if o != nil {
		o.ended(o)
	}
}
