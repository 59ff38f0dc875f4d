package sdk

import (
	"context"
	"fmt"
	"regexp"

	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Option changes a Definition while it is made.
type Option func(*settings) error

type settings struct {
	version  string
	doc      string
	outputs  any
	packages func(gpu bool) Packages

	environment []string // names of variables, see WithEnvironmentVariables
}

// WithVersion sets the plugin's own version, a semantic version; default "0.1.0".
func WithVersion(version string) Option {
	return func(s *settings) error {
		if version == "" {
			return fmt.Errorf("WithVersion: the version is empty; give one such as \"1.2.0\"")
		}
		s.version = version
		return nil
	}
}

// WithDoc sets a longer description of the block, in plain text.
func WithDoc(doc string) Option {
	return func(s *settings) error { s.doc = doc; return nil }
}

// WithOutputs sets what the block gives to other blocks, when that is more than its kind gives: a struct with `recipe` tags
// that embeds the struct of the kind (InferenceOutputs, TrainerOutputs, …). Host.Ready is then called with such a struct.
func WithOutputs(outputs any) Option {
	return func(s *settings) error { s.outputs = outputs; return nil }
}

// NewInference defines an inference plugin. C is its configuration, a struct with `recipe` tags (see spec.Of); factory makes
// a fresh plugin value for each life of a block. Like the other New functions it panics when a tag is wrong, which is a
// mistake of the plugin's author that the first run shows.
func NewInference[C any](name, summary string, factory func() Inference[C], opts ...Option) *Definition {
	return define[C](kind.Inference, name, summary, InferenceOutputs{}, factory, runInference[C], opts)
}

// NewTrainer defines a trainer.
func NewTrainer[C any](name, summary string, factory func() Trainer[C], opts ...Option) *Definition {
	return define[C](kind.Trainer, name, summary, TrainerOutputs{}, factory, runTrainer[C], opts)
}

// NewEnvironment defines an environment. Package sdk/environment makes the factory from two functions, Next and Score.
func NewEnvironment[C any](name, summary string, factory func() Service[C], opts ...Option) *Definition {
	return define[C](kind.Environment, name, summary, EnvironmentOutputs{}, factory, runService[C], opts)
}

// NewTrajectories defines a trajectory API.
func NewTrajectories[C any](name, summary string, factory func() Service[C], opts ...Option) *Definition {
	return define[C](kind.Trajectories, name, summary, TrajectoriesOutputs{}, factory, runService[C], opts)
}

// NewSync defines a sync plugin.
func NewSync[C any](name, summary string, factory func() Loop[C], opts ...Option) *Definition {
	return define[C](kind.Sync, name, summary, SyncOutputs{}, factory, runLoop[C], opts)
}

func runService[C any](ctx context.Context, plugin Service[C], req Request[C], h *host) error {
	return plugin.Run(ctx, req, h)
}

func runLoop[C any](ctx context.Context, plugin Loop[C], req Request[C], h *host) error {
	return plugin.Run(ctx, req, h)
}

var pluginName = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)

func define[C, P any](
	k kind.Kind, name, summary string, outputs any, factory func() P,
	run func(context.Context, P, Request[C], *host) error, opts []Option,
) *Definition {
	def, err := tryDefine(k, name, summary, outputs, factory, run, opts)
	if err != nil {
		panic(fmt.Sprintf("define %s plugin %q: %v", k, name, err))
	}
	return def
}

func tryDefine[C, P any](
	k kind.Kind, name, summary string, outputs any, factory func() P,
	run func(context.Context, P, Request[C], *host) error, opts []Option,
) (*Definition, error) {
	if !pluginName.MatchString(name) {
		return nil, fmt.Errorf("the name must match %s", pluginName)
	}
	s := settings{version: "0.1.0", outputs: outputs}
	for _, opt := range opts {
		if err := opt(&s); err != nil {
			return nil, err
		}
	}
	var config C
	schema, err := spec.Of(config)
	if err != nil {
		return nil, fmt.Errorf("its configuration: %w", err)
	}
	if s.doc != "" {
		schema.Doc = s.doc
	}
	given, err := spec.Of(s.outputs)
	if err != nil {
		return nil, fmt.Errorf("its outputs: %w", err)
	}
	for _, a := range given.Attributes {
		a.Computed = true
	}
	e := erased[C, P]{schema: schema, factory: factory, start: run}
	return &Definition{
		Kind: k, Name: name, Version: s.version, Summary: summary,
		Schema: schema, Outputs: given, Capabilities: e.capabilities(), Packages: s.packages, Environment: s.environment, impl: e,
	}, nil
}
