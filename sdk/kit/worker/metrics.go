package worker

import (
	"slices"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// ofVersions is from when staleness is known.
const ofVersions = "in steps with a group whose policy version is known"

// Metrics declares what recipe_sdk reports of each step of a trainer in Python, and what its program adds
// (spec.Metrics).
func Metrics(own ...[]spec.Metric) sdk.Option {
	return sdk.WithMetrics(slices.Concat(append([][]spec.Metric{
		spec.Metrics("reward/{mean,std,min,max}", "", "scores of the batch"),
		spec.Metrics("env/*/reward/{mean,std,min,max}", "", "scores of the groups of one environment"),
		spec.Metrics("env/*/{groups,zero_variance_groups}", "groups", "groups of one environment"),
		spec.Metrics("groups/{count,zero_variance}", "groups", "groups of the batch, and those of equal scores"),
		spec.Metrics("length/response_{mean,std,min,max}", "tokens", "trained tokens of a sequence"),
		spec.Metrics("length/total_{mean,max}", "tokens", "tokens of a sequence, prompt included"),
		spec.Metrics("sequences/count", "completions", "sequences of the batch"),
		spec.Metrics("sequences/left_out", "completions",
			"parts of rollouts that this trainer does not train on, because it takes one sequence a rollout"),
		spec.Metrics("tokens/{trained,total}", "tokens", "tokens of the batch"),
		spec.Since(ofVersions, spec.Metrics("staleness/{mean,max}", "policy versions", "between sampling and training")),
		spec.Metrics("staleness/{unknown,dropped}_groups", "groups", "without a policy version; too old to train on"),
		spec.Since(ofVersions, spec.Metrics("staleness/{mixed_groups,histogram/*}", "groups",
			"sampled by several policy versions; by their staleness")),
		spec.Since("with samples that have log-probabilities", spec.Metrics("mismatch/*", "",
			"log-probabilities of the sampler against the trainer's")),
		spec.Metrics("rejected_groups/total", "groups", "groups that were left out"),
		spec.Since("in steps that leave out a group for this reason", spec.Metrics("rejected_groups/*", "groups", "")),
		spec.Metrics("time/{step,wait}", "seconds", "phases of the step"),
		spec.Since("with a sync block", spec.Metrics("time/sync", "seconds", "")),
		spec.Since("in steps that have this phase", spec.Metrics("time/*", "seconds", "")),
		spec.Metrics("step", "steps", ""),
	}, own...)...)...)
}
