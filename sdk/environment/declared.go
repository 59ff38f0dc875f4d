package environment

import (
	"slices"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// declared adds the metrics of every environment of this package to the options of one (see tally).
func declared(opts []sdk.Option) []sdk.Option {
	return append(slices.Clone(opts), sdk.WithMetrics(slices.Concat(
		spec.Metrics("{reward,reward_sent}", "", "mean score of all completions, and of the groups that were sent"),
		spec.Metrics("groups{,_sent,_uninformative,_too_long,_lost}", "groups", "since the last report"),
		spec.Metrics("dropped_fraction", "share of groups", "groups that were not sent"),
		spec.Metrics("sampling_retries", "requests", "requests to inference that were repeated"),
		spec.Metrics("{rollouts_failed,infra_failed}", "completions", "completions without a score"),
		spec.Metrics("{rollouts_failed_fraction,infra_failed_fraction,truncated}", "share of completions", ""),
		spec.Metrics("completion_tokens", "tokens", "mean length of a completion"),
		spec.Metrics("tokens_per_second", "tokens per second", ""),
		spec.Metrics("turns", "turns", "mean of the episodes"),
		spec.Metrics(metricPrefix+"*", "", "what the environment reports of its scores"),
	)...))
}
