package executor

import (
	"context"
	"errors"
	"fmt"

	"github.com/zclconf/go-cty/cty"
	"google.golang.org/grpc"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/internal/attempt"
	"github.com/recipe-rl/recipe/sdk/internal/define"
	"github.com/recipe-rl/recipe/sdk/internal/process"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Opener is the implementation of an executor's definition.
type Opener interface {
	// Open makes the executor that a block configures. Dir is where it may keep files of its own.
	Open(config cty.Value, dir string) (Executor, error)
}

// Factory makes an executor from its configuration, a struct with `recipe` tags (see spec.Of). Dir is a folder of the
// run, which only this user can enter, where it may keep files of its own. It asks nobody: the cluster may be down.
type Factory[C any] func(config C, dir string) (Executor, error)

// New defines an executor. It panics when a tag of the configuration is wrong.
func New[C any](name, summary string, open Factory[C], opts ...sdk.Option) *sdk.Definition {
	def := define.New(kind.Executor, name, summary, struct{}{}, func() *C { return new(C) },
		func(context.Context, *C, sdk.Request[C], attempt.Host) error {
			return errors.New("a block of an executor is not started: the engine opens it and asks it about jobs")
		}, opts...)
	def.Implementation = opener[C]{Factory: def.Implementation.(process.Factory), schema: def.Schema, open: open}
	return def
}

type opener[C any] struct {
	process.Factory
	schema *spec.Schema
	open   Factory[C]
}

var (
	_ Opener           = opener[struct{}]{}
	_ process.Servicer = opener[struct{}]{}
)

func (o opener[C]) Open(value cty.Value, dir string) (Executor, error) {
	value, _ = value.UnmarkDeep()
	var config C
	if err := spec.Decode(o.schema.ApplyDefaults(value), o.schema, &config); err != nil {
		return nil, fmt.Errorf("decode the executor's configuration: %w", err)
	}
	return o.open(config, dir)
}

// Service implements process.Servicer: the program of the executor serves pluginpb.Executor.
func (o opener[C]) Service(r grpc.ServiceRegistrar, contact func() func()) {
	pluginpb.RegisterExecutorServer(r, &server{opener: o, schema: o.schema, contact: contact})
}
