package sync

import (
	"strconv"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Plan implements sdk.Planner: the staleness that is allowed is compared with what environments may queue.
func (s *syncer) Plan(c Config, _ sdk.Placement) (sdk.Estimate, []spec.Problem) {
	if c.MaxStaleness == nil {
		return sdk.Estimate{}, nil
	}
	return sdk.Estimate{Facts: map[string]string{"max_staleness": strconv.FormatInt(*c.MaxStaleness, 10)}}, nil
}
