package sync

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/recipe-rl/recipe/internal/gateway"
)

const (
	// keptMost bounds how long one update waits for evaluations that need one policy version.
	keptMost  = 2 * time.Minute
	keptEvery = 200 * time.Millisecond
)

// awaitKept waits while a gateway is asked to keep its version (gateway.Gateway.Keep), for a bounded time: an
// evaluation must not stop the training. A gateway that is held already answers no evaluation, and is not waited for.
func (s *syncer) awaitKept(ctx context.Context, u *update) error {
	begun, limit := time.Now(), min(keptMost, s.config.Timeout/2)
	for {
		var kept atomic.Pointer[server]
		s.each(s.servers, func(v *server) {
			asking, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			if status, err := v.client.Status(asking); err == nil && keeps(status) {
				kept.Store(v)
			}
		})
		v, waited := kept.Load(), time.Since(begun)
		if v == nil || waited >= limit {
			if v != nil {
				s.host.Log("warn", fmt.Sprintf("policy version %d is loaded while an evaluation of %s goes on: it has waited "+
					"for %s", u.Version, v.address, waited.Round(time.Second)))
			}
			return nil
		}
		done := s.waitFor(v.address, "an evaluation before policy version %d is loaded", u.Version)
		err := rest(ctx, keptEvery)
		done()
		if err != nil {
			return err
		}
	}
}

// timedKept is awaitStep of an update, before the time of the update itself begins to count.
func (s *syncer) timedKept(ctx context.Context, u *update) error {
	return u.timed("kept", func() error { return s.awaitStep(ctx, u.Step) })
}

// awaitStep waits while a gateway is asked to keep the weights of a step before this one (gateway.Gateway.Keep with a
// step). The recipe has asked for that, and who evaluates renews the request, so there is no limit of its own. A
// gateway that is held already answers no evaluation, and is not waited for.
func (s *syncer) awaitStep(ctx context.Context, step int64) error {
	for {
		var keeps atomic.Pointer[server]
		var after atomic.Int64
		s.each(s.servers, func(v *server) {
			asking, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			status, err := v.client.Status(asking)
			if err == nil && status.KeptAt != nil && *status.KeptAt < step && !status.Held {
				after.Store(*status.KeptAt)
				keeps.Store(v)
			}
		})
		v := keeps.Load()
		if v == nil {
			return nil
		}
		done := s.waitFor(v.address, "the evaluation of the weights of step %d", after.Load())
		err := rest(ctx, keptEvery)
		done()
		if err != nil {
			return err
		}
	}
}

// rest waits for a time, or returns why the context has ended.
func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

func keeps(s gateway.Status) bool { return s.Kept && !s.Held }
