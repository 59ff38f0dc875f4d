package sync

import (
	"context"

	"github.com/recipe-rl/recipe/internal/weightserver"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// letGoAhead lets a trainer that can calculate its next step while inference loads and verifies its weights, which it
// leaves alone until then. It returns whether it did; else the trainer waits for the end of the update.
//
// The trajectory API learns of a version when it is served, so the trainer gets the limit of staleness to apply itself
// until then. With a limit of 0 every group that is there already would be dropped: there it waits.
func (s *syncer) letGoAhead(ctx context.Context, u *update) bool {
	switch {
	case !u.Ahead, s.colocated:
		return false
	case s.transport == transport.Restart && s.config.meets(): // a server that starts measures the GPU's free memory
		return false
	}
	limit, err := s.config.staleness()
	if err != nil || limit != nil && *limit < 1 {
		return false
	}
	asking, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return s.trainer.Taken(asking, weightserver.Taken{Version: u.Version, MaxStaleness: limit}) == nil
}
