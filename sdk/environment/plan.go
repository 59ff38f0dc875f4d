package environment

import (
	"strconv"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Plan implements sdk.Planner: an environment needs next to nothing of a machine, but its group must fit the trainer's
// batch, its completions the server's context, and its queue the staleness that sync allows.
func (r *runner[C, E]) Plan(config C, _ sdk.Placement) (sdk.Estimate, []spec.Problem) {
	s := config.settings()
	return sdk.Estimate{Facts: map[string]string{
		"group_size":            strconv.FormatInt(s.GroupSize, 10),
		"max_completion_tokens": strconv.FormatInt(s.MaxTokens, 10),
		"queued_batches":        strconv.FormatInt(max(1, s.MaxBatchesOffpolicy), 10),
	}}, nil
}
