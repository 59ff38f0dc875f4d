package trajectory

import (
	"context"
	"fmt"
	"math"
	"time"
)

// Retry describes how often a call is repeated and how long to wait in between: First·Factor^n, at most Cap.
type Retry struct {
	Attempts int // in all, at least 1
	First    time.Duration
	Factor   float64
	Cap      time.Duration
}

// delay is the wait after attempt n, counted from 0.
func (r Retry) delay(n int) time.Duration {
	d := float64(r.First) * math.Pow(r.Factor, float64(n))
	return time.Duration(min(d, float64(r.Cap)))
}

// DefaultBatchRetry polls for a batch for about half a minute: 8 attempts, 0.3 s growing by half, at most 12 s.
func DefaultBatchRetry() Retry {
	return Retry{Attempts: 8, First: 300 * time.Millisecond, Factor: 1.5, Cap: 12 * time.Second}
}

// DefaultCallRetry repeats registrations and posts: 3 attempts, 4 s and 8 s apart, at most 15 s.
func DefaultCallRetry() Retry {
	return Retry{Attempts: 3, First: 4 * time.Second, Factor: 2, Cap: 15 * time.Second}
}

// sleep waits for d unless ctx ends first.
func sleep(ctx context.Context, d time.Duration, what string) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting %s before %s: %w", d.Round(time.Millisecond), what, context.Cause(ctx))
	}
}
