// Package sync is the contract of sync plugins, which bring a trainer's weights to inference. They drive the two with
// the clients Trainer and Gateway.
package sync

import (
	"context"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/internal/attempt"
	"github.com/recipe-rl/recipe/sdk/internal/define"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
)

// New defines a sync plugin. C is its configuration, a struct with `recipe` tags (see spec.Of); factory makes a fresh
// plugin value for each attempt of a block. It panics when a tag is wrong.
func New[C any](name, summary string, factory func() sdk.Service[C], opts ...sdk.Option) *sdk.Definition {
	return define.New(kind.Sync, name, summary, outputs.Sync{}, factory, run[C], opts...)
}

func run[C any](ctx context.Context, plugin sdk.Service[C], req sdk.Request[C], host attempt.Host) error {
	return plugin.Run(ctx, req, host)
}
