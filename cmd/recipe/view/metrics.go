package view

import (
	"slices"

	"github.com/recipe-rl/recipe/engine/snapshot"
)

// Rewards are the names under which blocks report a reward, those of trainers first.
func Rewards() []string {
	return []string{"reward", "reward/mean", "scores/mean", "reward_mean", "score"}
}

// Losses are the names under which trainers report their loss.
func Losses() []string { return []string{"loss", "policy_loss", "loss/policy", "loss/total"} }

// Speeds are the names under which blocks report tokens a second.
func Speeds() []string { return []string{"tokens_per_second", "tokens/per_second"} }

// Lags are the names under which trainers report by how many policy versions a batch is old.
func Lags() []string { return []string{"staleness", "staleness/mean"} }

// Headlines are the names of the main metrics of a run.
func Headlines() []string { return slices.Concat(Rewards(), Losses(), Speeds(), Lags()) }

// History returns the first of these metrics that a block has reported, over the run; nil when it has none.
func History(b *snapshot.Block, names ...string) *snapshot.Series {
	for _, name := range names {
		if series := b.History[name]; series != nil {
			return series
		}
	}
	return nil
}
