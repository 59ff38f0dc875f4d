// Package trajectories is the contract of trajectories plugins: the API that takes groups of rollouts and gives
// batches.
package trajectories

import (
	"context"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/internal/attempt"
	"github.com/recipe-rl/recipe/sdk/internal/define"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
)

// New defines a trajectory API. C is its configuration, a struct with `recipe` tags (see spec.Of); factory makes a
// fresh plugin value for each attempt of a block. It panics when a tag is wrong.
func New[C any](name, summary string, factory func() sdk.Service[C], opts ...sdk.Option) *sdk.Definition {
	return define.New(kind.Trajectories, name, summary, outputs.Trajectories{}, factory, run[C], opts...)
}

func run[C any](ctx context.Context, plugin sdk.Service[C], req sdk.Request[C], host attempt.Host) error {
	return plugin.Run(ctx, req, host)
}
