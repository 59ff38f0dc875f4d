package grpo

import (
	"fmt"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/modelinfo"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// misplaced are settings for GPUs that the block does not have: refused where it could not start, else told.
func (c Config) misplaced(p sdk.Placement) []spec.Problem {
	var problems []spec.Problem
	add := func(warning bool, block, name, summary, detail string) {
		problems = append(problems, spec.Problem{Path: cty.GetAttrPath(block).GetAttr(name), Warning: warning,
			Summary: summary, Detail: detail})
	}
	k := c.Compute
	cpu := k != nil && k.Device == "cpu" // without that a process takes a GPU wherever it finds one
	if k != nil {
		switch {
		case cpu && p.Count() > 0:
			add(true, "compute", "device", "the block's GPUs are not used", `device = "cpu" computes on the CPU. Leave device `+
				"out, or set placement { gpus = 0 }.")
		case p.Count() > 1 && strings.HasPrefix(k.Device, "cuda:"):
			add(false, "compute", "device", "each process has a GPU of its own", fmt.Sprintf("With device = %q all %d "+
				"processes would be on one. Leave it out: placement says which GPUs are used.", k.Device, p.Count()))
		}
		if k.Replicate != nil && p.Ranks() <= 1 {
			add(true, "compute", "replicate", "replicate has no effect", "There is one process, which has the whole model. "+
				"Set placement { gpus = 2 } or more, or leave it out.")
		}
		if k.Float8 != "" && cpu {
			add(false, "compute", "float8", "float8 needs a GPU", `device = "cpu" computes on the CPU. Leave one of them out.`)
		}
	}
	if c.offloaded() && cpu {
		add(true, "optimizer", "offload", "offload has no effect", `With device = "cpu" moments are in the host's memory `+
			"anyway.")
	}
	if c.Reference != nil && c.Reference.Offload && cpu {
		add(true, "reference", "offload", "offload has no effect", `With device = "cpu" the reference is in the host's `+
			"memory anyway.")
	}
	return problems
}

// tooLong warns of sequences beyond the positions that a model has learned: it answers, as if there were no problem.
func tooLong(c Config, m modelinfo.Model) spec.Problem {
	return spec.Problem{Path: cty.GetAttrPath("max_length"), Warning: true,
		Summary: fmt.Sprintf("the model was made for %d tokens, max_length allows %d", m.MaxLen, c.MaxLength),
		Detail: fmt.Sprintf("Of longer sequences it knows no positions, and what it learns of them may be wrong. Lower "+
			"max_length to %d, unless the model's config.json is wrong or it is extended on purpose.", m.MaxLen)}
}
