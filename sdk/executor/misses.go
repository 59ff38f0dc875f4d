package executor

import (
	"context"
	"fmt"
	"time"
)

// A job is Lost after so many answers in a row without it, over at least this time. A scheduler that restarts, or a
// reserve that takes over from it, may name no jobs for some seconds.
const (
	missesUntilLost = 3
	missingFor      = 10 * time.Second
)

// Misses counts the answers in a row in which a scheduler did not name a job. The zero value has none.
type Misses struct {
	count int
	first time.Time
}

// Judge returns a status, or Lost in place of Unknown once the job has been missing for long enough.
func (m *Misses) Judge(s Status, now time.Time) Status {
	if s.State != Unknown {
		*m = Misses{}
		return s
	}
	if m.count == 0 {
		m.first = now
	}
	m.count++
	if missing := now.Sub(m.first); m.count >= missesUntilLost && missing >= missingFor {
		s.State = Lost
		s.Reason = fmt.Sprintf("%s, in %d answers within %s", s.Reason, m.count, missing.Round(time.Second))
	}
	return s
}

// settleEvery is the time between two questions of Settled.
const settleEvery = 2 * time.Second

// Settled is One that asks again while the job is Unknown, until it is known or Lost. An error of the executor is
// returned at once.
func Settled(ctx context.Context, e Executor, h Handle) (Status, error) {
	s, err := One(ctx, e, h)
	if err != nil || s.State != Unknown {
		return s, err
	}
	return poll(ctx, e, h, settleEvery, func(s Status) bool { return s.State != Unknown })
}
