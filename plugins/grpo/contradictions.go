package grpo

import (
	"fmt"
	"slices"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/spec"
)

// contradictions are settings that the worker would refuse when it starts, because they do not go together;
// validateLearning has those of the loss and its corrections. A test puts the same settings to the worker itself.
func contradictions(c Config) []spec.Problem {
	var problems []spec.Problem
	add := func(block, attribute, summary, detail string) {
		problems = append(problems, spec.Problem{Path: cty.GetAttrPath(block).GetAttr(attribute), Summary: summary,
			Detail: detail})
	}
	if l := c.Loss; l != nil && l.Import != "" && l.Name != "" && l.Name != "ppo" {
		add("loss", "import", "import stands in the place of name",
			fmt.Sprintf("Both are set, name to %q. Leave one of them out.", l.Name))
	}
	if a := c.Advantages; a != nil && a.Import != "" && a.Estimator != "" && a.Estimator != "grpo" {
		add("advantages", "import", "import stands in the place of estimator",
			fmt.Sprintf("Both are set, estimator to %q. Leave one of them out.", a.Estimator))
	}
	if l := c.Loss; l != nil {
		for _, pair := range []struct {
			name   string
			values []float64
		}{{"vespo_k", l.VespoK}, {"vespo_lambda", l.VespoLambda}, {"clip_cov_bounds", l.ClipCovBounds}} {
			if n := len(pair.values); n != 0 && n != 2 {
				add("loss", pair.name, pair.name+" takes two numbers", fmt.Sprintf("It was given %d.", n))
			}
		}
		if l.TopEntropy <= 0 || l.TopEntropy > 1 {
			add("loss", "top_entropy", "top_entropy is a share of the tokens",
				fmt.Sprintf("Expected more than 0 and at most 1, got %g. 1 trains all tokens.", l.TopEntropy))
		}
		if r := c.Reference; r != nil && l.Import == "" && slices.Contains(needs(l.Name), "reference") &&
			slices.Contains([]string{"none", "lora_off"}, r.Source) {
			add("reference", "source", "distillation needs a teacher",
				`Write reference { source = "copy"  path = … }, or source = "data" when the groups carry the teacher's log-probabilities.`)
		}
	}
	if a := c.Advantages; a != nil && a.Import == "" && slices.Contains(algorithms().estimator(a.Estimator).Needs,
		"objectives") {
		if len(a.ObjectiveWeights) == 0 {
			add("advantages", "objective_weights", a.Estimator+" needs one weight for each objective",
				"Write objective_weights = [1, 0.5], for example.")
		}
		if a.LengthPenalty {
			add("advantages", "length_penalty", a.Estimator+" looks at objectives, not at scores",
				"Make length one of the objectives instead.")
		}
	}
	if k := c.KL; k != nil && k.AdaptiveTarget != nil && !(*k.AdaptiveTarget > 0 && k.RewardCoefficient > 0) {
		add("kl", "adaptive_target", "adaptive_target scales reward_coefficient", "Both must be more than 0.")
	}
	return problems
}

// needs are what a loss must be given.
func needs(name string) []string {
	spec, _ := algorithms().loss(name)
	return spec.Needs
}
