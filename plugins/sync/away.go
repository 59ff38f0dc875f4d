package sync

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/recipe-rl/recipe/internal/gateway"
)

// An inference block whose servers are all being started again cannot load weights for a minute or more. While another
// block can, an update goes on without it: it takes note of the weights, and its servers come up with them.

// able are the servers that an update is for: all, but for those that are being started again while another is up. They
// take note of the weights when the others have loaded them.
func (s *syncer) able(ctx context.Context, u *update) []*server {
	u.away = map[*server]bool{}
	if len(s.servers) == 1 {
		return s.servers
	}
	s.each(s.servers, func(v *server) {
		asking, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		status, err := v.client.Status(asking)
		if err != nil || !status.Down {
			return // holding it says what is wrong
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		u.away[v] = true
	})
	up := slices.DeleteFunc(slices.Clone(s.servers), func(v *server) bool { return u.away[v] })
	if len(up) == 0 {
		clear(u.away)
		return s.servers
	}
	return up
}

// notifyStarting has the blocks that were left out take note of the weights, which the others serve now.
func (s *syncer) notifyStarting(ctx context.Context, u *update) {
	s.each(slices.Collect(maps.Keys(u.away)), func(v *server) {
		if err := s.tell(ctx, v); err != nil { // it may be up by now: repair brings them
			u.mu.Lock()
			defer u.mu.Unlock()
			u.failed[v] = fmt.Errorf("%s: %w", v.address, err)
		}
	})
}

// tell has a block of which no server is up take note of the newest weights.
func (s *syncer) tell(ctx context.Context, v *server) error {
	asking, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	request := s.last.request("")
	request.Mode = s.mode()
	if err := v.client.Adopt(asking, request); err != nil {
		return err
	}
	if !v.told { // later versions stand in the log of inference
		s.host.Log("info", fmt.Sprintf("no server of %s is up: they will come up with policy version %d or a newer one",
			v.address, s.last.Weights.Version))
	}
	v.told = true
	return nil
}

// awaited reports that a block will come up with the newest weights, of which it is told if it does not know.
func (s *syncer) awaited(ctx context.Context, v *server, status gateway.Status) bool {
	newest := s.last.Weights.Version
	if !status.Down || int64(status.Version) > newest {
		return false
	}
	return int64(status.Version) == newest || s.tell(ctx, v) == nil
}
