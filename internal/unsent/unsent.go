// Package unsent counts groups in a row that an environment has made and not sent. They are what a trainer waits for:
// the environment works, and nothing comes of it.
package unsent

import (
	"fmt"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/sdk"
)

// Why a group is not sent.
const (
	FlatScores   = "its scores are all equal, so there is nothing to train on"
	LongSequence = "it is longer than the trainer takes"
	LongPrompt   = "its prompt and max_tokens are together longer than the model's context"
	NoScores     = "too few of its completions have a score"
)

const (
	// enough groups in a row are worth a report.
	enough = 8
	// leastPause is how long no group has to come, at least, before other work is what the trainer waits for.
	leastPause = 10 * time.Second
)

// Row is the groups since the last one that was sent. Its methods may be called from any goroutine.
type Row struct {
	mu          sync.Mutex
	groups      int
	why         string // of the last one
	mixed       bool   // others had another reason
	first, last time.Time
	pause       time.Duration // the longest between two of them
}

// Add notes a group, and why it is not sent; empty: it is.
func (r *Row) Add(why string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case why == "":
		r.groups, r.mixed, r.pause = 0, false, 0
		return
	case r.groups == 0:
		r.first = now
	default:
		r.pause = max(r.pause, now.Sub(r.last))
		r.mixed = r.mixed || why != r.why
	}
	r.groups, r.why, r.last = r.groups+1, why, now
}

// Activity is what to report while groups come and none is sent. Not ok: one was, or groups have ceased to come, for
// longer than between any two before, so that what the environment does now is what the trainer waits for.
func (r *Row) Activity(now time.Time) (a sdk.Activity, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.groups < enough || now.Sub(r.last) > max(leastPause, 2*r.pause) {
		return a, false
	}
	a = sdk.Activity{What: "a group worth sending", Began: r.first,
		Detail: fmt.Sprintf("each of the last %d was left out: %s", r.groups, r.why)}
	if r.mixed {
		a.Detail = fmt.Sprintf("each of the last %d was left out, for several reasons; the last: %s", r.groups, r.why)
	}
	switch r.why {
	case FlatScores:
		a.Remedy = "the tasks are too easy, too hard, or scored wrongly; drop_uninformative = false sends such groups all " +
			"the same"
	case LongSequence:
		a.Remedy = "lower max_tokens of the environment, or let the trainer take longer sequences"
	case LongPrompt:
		a.Remedy = "lower max_tokens of the environment, leave out long prompts, or raise the context of the inference block"
	case NoScores:
		a.Remedy = "its log has the reasons: recipe logs --level warn"
	}
	return a, true
}
