package main

import (
	"context"

	agentenv "github.com/recipe-rl/recipe/plugins/agent"
	"github.com/recipe-rl/recipe/plugins/arithmetic"
	"github.com/recipe-rl/recipe/plugins/atropos"
	"github.com/recipe-rl/recipe/plugins/axolotl"
	"github.com/recipe-rl/recipe/plugins/grpo"
	"github.com/recipe-rl/recipe/plugins/gymnasium"
	"github.com/recipe-rl/recipe/plugins/kubernetes"
	"github.com/recipe-rl/recipe/plugins/local"
	"github.com/recipe-rl/recipe/plugins/openenv"
	"github.com/recipe-rl/recipe/plugins/ors"
	reasoninggym "github.com/recipe-rl/recipe/plugins/reasoning_gym"
	"github.com/recipe-rl/recipe/plugins/reward"
	"github.com/recipe-rl/recipe/plugins/sglang"
	"github.com/recipe-rl/recipe/plugins/slurm"
	"github.com/recipe-rl/recipe/plugins/sync"
	"github.com/recipe-rl/recipe/plugins/textarena"
	"github.com/recipe-rl/recipe/plugins/tiny"
	"github.com/recipe-rl/recipe/plugins/trajectories"
	"github.com/recipe-rl/recipe/plugins/trl"
	"github.com/recipe-rl/recipe/plugins/verifiers"
	"github.com/recipe-rl/recipe/plugins/verl"
	"github.com/recipe-rl/recipe/plugins/vllm"
	"github.com/recipe-rl/recipe/sdk"
)

// builtins are the plugins inside this binary. This is the one file that names them.
func builtins() []*sdk.Definition {
	return []*sdk.Definition{
		agentenv.Plugin(),
		agentenv.HarborPlugin(),
		arithmetic.Definition(),
		atropos.Plugin(),
		axolotl.Plugin(),
		grpo.Plugin(),
		gymnasium.Plugin(),
		kubernetes.Plugin(),
		local.Plugin(),
		openenv.Plugin(),
		ors.Plugin(),
		reasoninggym.Plugin(),
		reward.Plugin(),
		slurm.Plugin(),
		sync.Definition(),
		textarena.Plugin(),
		tiny.Inference(),
		tiny.Trainer(),
		trajectories.Plugin(),
		trl.Plugin(),
		verifiers.Plugin(),
		verl.Plugin(),
		vllm.Plugin(),
		sglang.Plugin(),
	}
}

// knownAgents are the agents that environment "agent" knows by name.
func knownAgents() []agentenv.Known { return agentenv.Agents() }

// Types and functions of environment "harbor" that recipe env validate uses.
type (
	taskValidation = agentenv.Validation
	taskVerdict    = agentenv.Verdict
)

func validateTasks(ctx context.Context, v taskValidation) ([]taskVerdict, error) {
	return agentenv.ValidateTasks(ctx, v)
}
