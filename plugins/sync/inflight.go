package sync

import (
	"strings"

	"github.com/recipe-rl/recipe/sdk/outputs"
	sdksync "github.com/recipe-rl/recipe/sdk/sync"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// decided replaces in_flight = auto by drain or keep, according to the outputs of the running blocks, and says why.
// Unshared says why files cannot be used; empty: they can. The plan has decided by the same rule with what was known
// before (engine/sizing).
func (c Config) decided(unshared string) (Config, string, error) {
	if c.InFlight != sdksync.Auto {
		return c, "the recipe says so", nil
	}
	chosen, _, err := c.choose(unshared)
	if err != nil {
		return c, "", err
	}
	sleeps, err := c.colocate()
	if err != nil {
		return c, "", err
	}
	limit, err := c.staleness()
	if err != nil {
		return c, "", err
	}
	why := ""
	c.InFlight, why = sdksync.Overlap{Transport: chosen, Live: c.Transport == string(transport.Live), Sleeps: sleeps,
		Staleness: limit, Trainer: c.Trainer.Address, Corrects: strings.Join(listed(c.Trainer, "corrects"), "")}.Decide()
	return c, why, nil
}

// staleness is how many versions old a sample may be: the least of this block's limit and the trajectory API's.
func (c Config) staleness() (*int64, error) {
	if c.Trajectories == nil || c.Trajectories.Address == "" {
		return c.MaxStaleness, nil
	}
	var out outputs.TrajectoryLimits
	if err := c.Trajectories.Decode(&out); err != nil {
		return nil, err
	}
	return sdksync.Least(c.MaxStaleness, out.MaxStaleness), nil
}
