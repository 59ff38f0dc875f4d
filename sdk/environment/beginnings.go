package environment

import (
	"fmt"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/sdk"
)

// beginningsApart is how long after a failure to begin an episode the next one counts: episodes that begin at once fail
// at once.
const beginningsApart = 20 * time.Second

// beginnings notes whether any episode has ever begun. A server that asks something else and waits for it fails so
// slowly that groups are lost only after hours, though nothing will ever come of it.
type beginnings struct {
	mu     sync.Mutex
	worked bool
	why    string
	failed int64 // with these words, apart
	last   time.Time
}

// noEpisode is the error that ends the block.
type noEpisode struct{ of *sdk.Error }

func (e *noEpisode) Error() string { return e.of.Error() }
func (e *noEpisode) Unwrap() error { return e.of }

func (b *beginnings) begun() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.worked = true
}

// hopeless notes a failure, and returns what ends the block when so many have come, apart and with the same words, and
// no episode has ever begun; else nil.
func (b *beginnings) hopeless(err error, most int64, now time.Time) *sdk.Error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.worked {
		return nil
	}
	if b.why != err.Error() {
		b.why, b.failed = err.Error(), 0
	}
	if b.failed > 0 && now.Sub(b.last) < beginningsApart {
		return nil
	}
	b.failed, b.last = b.failed+1, now
	if b.failed < most {
		return nil
	}
	// The reason is text: an error of the infrastructure would be tried again.
	return &sdk.Error{Summary: fmt.Sprintf("no episode has begun, and the last %d failures, at least %s apart, were the "+
		"same", b.failed, beginningsApart), Detail: b.why, Final: true,
		Remedy: "see what the environment's server writes in its log, above: it waits for something, or fails before it " +
			"answers; a raised episode_attempts waits longer"}
}
