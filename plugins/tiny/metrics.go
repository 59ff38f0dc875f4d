package tiny

import (
	"slices"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// trainerMetrics are the metrics of a step.
func trainerMetrics() sdk.Option {
	return sdk.WithMetrics(slices.Concat(
		spec.Metrics("{reward,reward_deviation}", "", "mean and deviation of the batch's scores"),
		spec.Metrics("{loss,policy_kl,kl,entropy,grad_norm,learning_rate}", "", ""),
		spec.Metrics("clip_fraction", "share of tokens", "tokens that the loss clips"),
		spec.Metrics("tokens", "tokens", "completion tokens of the batch"),
		spec.Metrics("tokens_per_second", "tokens per second", ""),
		spec.Metrics("{sequences,zeroed_sequences}", "completions", ""),
		spec.Metrics("{groups,flat_groups,fallback_groups}", "groups", "in the batch; of equal scores"),
		spec.Metrics("rejected_groups", "groups", "groups that were left out"),
		spec.Since("in steps that leave out a group for this reason", spec.Metrics("rejected_groups/*", "groups", "")),
		spec.Metrics("advantage_{mean,deviation,min,max}", "", ""),
		spec.Metrics("override_fraction", "share of tokens", ""),
		spec.Metrics("seconds_{waiting,training,syncing}", "seconds", "of the step"),
		spec.Metrics("mismatch/{fresh,stale}_tokens", "tokens", "tokens of the newest policy version; of older ones"),
		spec.Since("in steps with such tokens", spec.Metrics("mismatch/{fresh,stale}_{mean_abs,max_abs,kl,clipped}", "",
			"sampler against trainer")),
		spec.Since("in steps with a group whose policy version is known", spec.Metrics("{staleness,staleness_max}",
			"policy versions", "between sampling and training")),
	)...)
}

// inferenceMetrics are the metrics of a server.
func inferenceMetrics() sdk.Option {
	return sdk.WithMetrics(slices.Concat(
		spec.Metrics("tokens_per_second", "tokens per second", ""),
		spec.Metrics("{active,waiting}", "requests", ""),
	)...)
}
