// Package reward is `environment "reward"`: a reward function in TRL's signature and a dataset. The environment itself
// is in Python, in python/recipe_reward.
package reward

import (
	"embed"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/script"
	"github.com/recipe-rl/recipe/sdk/spec"
)

var (
	//go:embed python/recipe_reward/*.py
	code embed.FS
	//go:embed description.json
	description []byte
)

// Plugin defines `environment "reward"`.
func Plugin() *sdk.Definition {
	rewards := spec.Since("in reports with scored completions",
		spec.Metrics("metrics/reward/*", "", "mean of what the reward function of that name returned"))
	rewards[0].Of = []string{"function", "functions.function"}
	return script.Bundled("reward", description, source(), sdk.WithMetrics(rewards...))
}

// source has datasets for names of the hub, which brings pyarrow for Parquet. JSON lines, JSON and CSV need neither.
func source() script.Source {
	return script.Source{Tree: script.Folder(code, "python"), Module: "recipe_reward.reward",
		Packages: sdk.Packages{Requirements: []string{"datasets==5.2.0"}}}
}
