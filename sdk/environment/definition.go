package environment

import (
	"context"
	"slices"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/internal/attempt"
	"github.com/recipe-rl/recipe/sdk/internal/define"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
)

// New defines an environment that samples, scores and posts groups itself, as one that runs a program of its own does.
// Define makes one from two functions.
func New[C any](name, summary string, factory func() sdk.Service[C], opts ...sdk.Option) *sdk.Definition {
	return define.New(kind.Environment, name, summary, outputs.Environment{}, factory, run[C],
		append(slices.Clone(opts), sizedAsSet)...)
}

func run[C any](ctx context.Context, plugin sdk.Service[C], req sdk.Request[C], host attempt.Host) error {
	return plugin.Run(ctx, req, host)
}

// sizedAsSet reports that a plan knows the output group_size, which is the attribute.
func sizedAsSet(d *sdk.Definition) error {
	if size := d.Outputs.Attribute("group_size"); size != nil && d.Schema.Attribute("group_size") != nil {
		size.SameAs = []string{"group_size"}
	}
	return nil
}
