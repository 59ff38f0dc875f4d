package environment

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	tailMost  = 64 // groups whose times are kept
	tailLeast = 16 // groups that must be done while one goes on, before it is ended for its time
	tailLook  = time.Second
	leastTail = 2 // smallest max_tail: the lengths of answers often differ by a factor of two
)

// errTail is the cause of the end of a group that takes too long beside others.
var errTail = errors.New("it takes much longer than other groups (max_tail)")

// tail has the times of the last groups. A batch waits for its slowest group.
type tail struct {
	mu   sync.Mutex
	took []time.Duration // at most tailMost, the oldest replaced first
	next int
	all  int             // groups that are done
	late []time.Duration // of groups since the last report
}

func (t *tail) done(took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.late, t.all = append(t.late, took), t.all+1
	if len(t.took) < tailMost {
		t.took = append(t.took, took)
		return
	}
	t.took[t.next] = took
	t.next = (t.next + 1) % tailMost
}

// bound ends ctx when a group that begins now has taken factor times as long as the median of the last groups, while
// others were done: where none are, all wait for something, such as an update. A factor of 0 bounds nothing.
func (t *tail) bound(ctx context.Context, factor float64) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	if factor > 0 {
		began, before := time.Now(), t.count()
		go func() {
			for {
				left := t.left(factor, began, before)
				if left <= 0 {
					end(errTail)
					return
				}
				select {
				case <-time.After(left):
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	return ctx, func() { end(nil) }
}

// count is how many groups are done.
func (t *tail) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all
}

// left is how long to wait before the next look at a group; 0: its time is over. Before is the number of groups that
// were done when it began.
func (t *tail) left(factor float64, began time.Time, before int) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all-before < tailLeast {
		return tailLook
	}
	if left := time.Duration(factor*float64(median(t.took))) - time.Since(began); left > 0 {
		return min(left, tailLook)
	}
	return 0
}

// take returns the median and the greatest time of the groups since the last call; 0 without any.
func (t *tail) take() (middle, most time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.late) > 0 {
		middle, most = median(t.late), slices.Max(t.late)
	}
	t.late = nil
	return middle, most
}

// median is the middle of at least one duration.
func median(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}
