package sdk

import (
	"slices"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/sdk/pluginpb"
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

// Ongoing is an activity that goes on. Its methods may be called from any goroutine, and on nil.
type Ongoing struct {
	set *activities
	now Activity
}

// Progress reports progress. Have counts what is there.
func (o *Ongoing) Progress(have int64, detail string) {
	if o == nil {
		return
	}
	o.set.mu.Lock()
	defer o.set.mu.Unlock()
	o.now.Have, o.now.Detail, o.now.Progressed = have, detail, time.Now()
}

// End says that the activity is over.
func (o *Ongoing) End() {
	if o == nil {
		return
	}
	o.set.mu.Lock()
	defer o.set.mu.Unlock()
	if at := slices.Index(o.set.ongoing, o); at >= 0 {
		o.set.ongoing = slices.Delete(o.set.ongoing, at, at+1)
	}
}

// activities are those of one block. The zero value is one that has not reported any.
type activities struct {
	mu       sync.Mutex
	reported bool
	ongoing  []*Ongoing
	sources  []func() []Activity
}

// Begin implements Host.
func (s *activities) Begin(a Activity) *Ongoing {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.Began.IsZero() {
		a.Began = time.Now()
	}
	s.reported = true
	o := &Ongoing{set: s, now: a}
	s.ongoing = append(s.ongoing, o)
	return o
}

// Activities implements Host.
func (s *activities) Activities(list func() []Activity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reported = true
	s.sources = append(s.sources, list)
}

// sourcePatience bounds how long a source may take: one that waits for a lock held by hanging code must not hide the
// rest.
const sourcePatience = time.Second

// list returns the activities of this moment, and false when the block has never reported any.
func (s *activities) list() ([]Activity, bool) {
	s.mu.Lock()
	reported, sources := s.reported, slices.Clone(s.sources)
	out := make([]Activity, 0, len(s.ongoing))
	for _, o := range s.ongoing {
		out = append(out, o.now)
	}
	s.mu.Unlock()
	late := time.NewTimer(sourcePatience)
	defer late.Stop()
	for _, source := range sources {
		answer := make(chan []Activity, 1)
		go func() { answer <- source() }()
		select {
		case list := <-answer:
			out = append(out, list...)
		case <-late.C:
			return append(out, Activity{What: "a function that reports activities has not returned",
				Began: time.Now().Add(-sourcePatience)}), reported
		}
	}
	return out, reported
}

// activitiesTo converts activities for the wire, with ages instead of times: the reader's clock may differ.
func activitiesTo(list []Activity, now time.Time, blank func(string) string) []*pluginpb.Activity {
	out := make([]*pluginpb.Activity, 0, len(list))
	for _, a := range list {
		if a.Began.IsZero() {
			a.Began = now
		}
		out = append(out, &pluginpb.Activity{
			On: a.On, What: blank(a.What), Detail: blank(a.Detail), Have: a.Have, Want: a.Want, Unit: a.Unit,
			Sign: a.Sign, Remedy: blank(a.Remedy),
			AgeMs: max(0, now.Sub(a.Began).Milliseconds()), IdleMs: a.Idle(now).Milliseconds(),
			PatienceMs: a.Patience.Milliseconds(), Rest: a.Rest,
		})
	}
	return out
}
