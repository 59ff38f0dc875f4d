package sync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// holdLease is how long a gateway stays held without a renewal by this block; it is renewed while the update lasts.
const holdLease = time.Minute

// mode describes what happens to requests in flight.
func (s *syncer) mode() gateway.Mode {
	if s.transport == transport.Live {
		return gateway.ModeNone
	}
	return gateway.Mode(s.config.InFlight)
}

// holdGateway closes one gateway, or with transport live asks only whether it is there.
func (s *syncer) holdGateway(ctx context.Context, v *server, version int64) (hold string, err error) {
	if s.transport == transport.Live {
		status, err := v.client.Status(ctx)
		if err == nil {
			v.expects = status.Expects
		}
		return "", err
	}
	h, err := v.client.Hold(ctx, gateway.HoldRequest{Mode: s.mode(), Lease: holdLease, Drain: s.config.Timeout,
		Reason: s.reason(version)})
	return h.ID, err
}

// hold closes every gateway that can load weights, and keeps it closed until the function that it returns is called.
// One that does not answer, or whose servers are all being started again, is brought up to date when it comes back; if
// that is so for all, it waits for the first.
func (s *syncer) hold(ctx context.Context, u *update) (stop func(), err error) {
	u.away = nil
	if stop, ok := s.adoptHolds(u); ok {
		return stop, nil // they sleep, and have been held all the time
	}
	begun := time.Now()
	for len(u.holds) == 0 {
		s.each(s.able(ctx, u), func(v *server) {
			done := s.waitFor(v.address, "its requests in flight to end before policy version %d is loaded", u.Version)
			id, err := s.holdGateway(ctx, v, u.Version)
			done()
			u.mu.Lock()
			defer u.mu.Unlock()
			delete(u.failed, v)
			if err != nil {
				u.failed[v] = fmt.Errorf("%s: %w", v.address, err)
				return
			}
			u.holds[v] = id
		})
		if len(u.holds) > 0 {
			break
		}
		s.host.Phase(sdk.Degraded, fmt.Sprintf("policy version %d waits: no inference block can be held: %v",
			u.Version, joined(u.failed)))
		timer := time.NewTimer(checkEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("hold inference for policy version %d: %w", u.Version,
				errors.Join(ctx.Err(), joined(u.failed)))
		case <-timer.C:
		}
	}
	u.phases["hold"] = time.Since(begun).Seconds()
	return s.renew(ctx, u), nil
}

// renew keeps the holds alive.
func (s *syncer) renew(ctx context.Context, u *update) (stop func()) {
	held := make(map[*server]string, len(u.holds))
	for v, id := range u.holds {
		if id != "" {
			held[v] = id
		}
	}
	return repeat(ctx, holdLease/3, func(ctx context.Context) { s.renewAll(ctx, held) })
}

// renewAll asks side by side: a gateway that hangs must not cost the others their holds.
func (s *syncer) renewAll(ctx context.Context, held map[*server]string) {
	s.each(slices.Collect(maps.Keys(held)), func(v *server) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		// A hold that could not be renewed shows when the update under it is refused.
		_, _ = v.client.Hold(ctx, gateway.HoldRequest{ID: held[v], Lease: holdLease})
	})
}

// release opens what is still held. It must work when the update's own context has ended.
func (s *syncer) release(u *update) {
	if len(u.holds) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	var list []*server
	for v, id := range u.holds {
		if id != "" { // without an ID any hold would be ended
			list = append(list, v)
		}
	}
	s.each(list, func(v *server) {
		// A hold whose lease ran out has ended already; any other failure ends with its lease.
		_ = v.client.Resume(ctx, u.holds[v])
	})
	clear(u.holds)
}

// reason marks a hold as this block's, so that its next attempt recognizes it.
func (s *syncer) reason(version int64) string {
	return fmt.Sprintf("%s brings policy version %d", s.address, version)
}

// each runs f for the servers side by side and waits for all.
func (s *syncer) each(list []*server, f func(*server)) {
	var wg sync.WaitGroup
	for _, v := range list {
		wg.Go(func() { f(v) })
	}
	wg.Wait()
}
