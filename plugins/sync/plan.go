package sync

import (
	"strconv"
	"strings"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/spec"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// Plan implements sdk.Planner: the staleness that is allowed is compared with what environments may queue, and the
// transports that may be taken, the best first, with what trainer and inference offer.
func (s *syncer) Plan(c Config, _ sdk.Placement) (sdk.Estimate, []spec.Problem) {
	facts := map[string]string{"transport": c.Transport, "transports": strings.Join(transport.Texts(c.candidates()), ","),
		"in_flight": c.InFlight, "colocated": c.Colocated, "nondeterminism": ""}
	if c.MaxStaleness != nil {
		facts["max_staleness"] = strconv.FormatInt(*c.MaxStaleness, 10)
	}
	return sdk.Estimate{Facts: facts}, nil
}
