package environment

import (
	"slices"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// failedPrefix begins the names of the metrics that count rollouts without a score by cause.
const failedPrefix = "rollouts_failed/"

// From when metrics are reported.
const (
	withCompletions = "in reports with completions"
	withScores      = "in reports with scored completions"
)

// declared adds the metrics of every environment of this package to the options of one (see tally).
func declared(opts []sdk.Option) []sdk.Option {
	return append(slices.Clone(opts), sdk.WithMetrics(slices.Concat(
		spec.Since(withScores, spec.Metrics("reward", "", "mean score of all completions")),
		spec.Since("in reports with groups that were sent", spec.Metrics("reward_sent", "",
			"mean score of their completions")),
		spec.Metrics("groups{,_sent,_uninformative,_too_long,_lost,_stale}", "groups", "since the last report"),
		spec.Since("in reports with groups", spec.Metrics("dropped_fraction", "share of groups",
			"groups that were not sent")),
		spec.Since("in reports with groups that are done", spec.Metrics("group_seconds/{median,max}", "seconds",
			"from the first request of a group to its last score")),
		spec.Metrics("sampling_retries", "requests", "requests to inference that were repeated"),
		spec.Since(withCompletions, spec.Metrics("rollouts_wasted", "completions",
			"in groups that were not sent")),
		spec.Since("once a task has come twice", spec.Metrics("tasks/{unsolved,hard,target,easy,solved}", "tasks",
			"by their solve rate: 0, below the curriculum's target (0.2), in it, above it (0.8), 1")),
		spec.Since("with a curriculum, in reports after such a task", spec.Metrics("tasks/passed_over", "tasks",
			"that the curriculum left out since the last report")),
		spec.Since(withCompletions, spec.Metrics("rollouts", "completions", "since the last report")),
		spec.Since(withCompletions, spec.Metrics("{rollouts_failed,infra_failed}", "completions",
			"completions without a score")),
		spec.Since("in reports with such completions", spec.Metrics(failedPrefix+"*", "completions",
			"completions without a score, by cause: type and line of the exception, score_timeout")),
		spec.Since(withCompletions, spec.Metrics("{rollouts_failed_fraction,infra_failed_fraction}",
			"share of completions", "")),
		spec.Since(withScores, spec.Metrics("truncated", "share of completions", "")),
		spec.Since(withScores, spec.Metrics("completion_tokens", "tokens", "mean length of a completion")),
		spec.Since(withScores, spec.Metrics("tokens_per_second", "tokens per second", "")),
		spec.Since("by environments with episodes", spec.Metrics("turns", "turns", "mean of the episodes")),
		spec.Since(withScores, spec.Metrics(metricPrefix+"*", "", "what the environment reports of its scores")),
	)...))
}
