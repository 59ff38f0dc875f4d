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
		timer := time.NewTimer(keptEvery)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		done()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

func keeps(s gateway.Status) bool { return s.Kept && !s.Held }
