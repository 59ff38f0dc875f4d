package sdk

import (
	"context"
	"fmt"

	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/lazyregexp"
	"github.com/recipe-rl/recipe/sdk/protocol"
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
	defaults    map[string]string
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

// WithOutputs sets what the block gives to other blocks, when that is more than its kind gives: a struct with `recipe`
// tags that embeds the struct of the kind (outputs.Inference, outputs.Trainer, …). Host.Ready is then called with such
// a struct.
func WithOutputs(outputs any) Option {
	return func(s *settings) error { s.outputs = outputs; return nil }
}

// WithDefault changes the default of one attribute, for a configuration that embeds a struct with another default:
// WithDefault("group_size", "16"). The value is written as in the tag `default`.
func WithDefault(attribute, value string) Option {
	return func(s *settings) error {
		if s.defaults == nil {
			s.defaults = map[string]string{}
		}
		s.defaults[attribute] = value
		return nil
	}
}

var pluginName = lazyregexp.New(`^[a-z][a-z0-9_-]*$`)

// WithEnvironmentVariables says which variables of the environment in which recipe runs the plugin reads, beyond those
// that every program gets (docs/plugin-protocol.md lists them): HF_TOKEN, say, or MYTOOL_* for all that begin with
// MYTOOL_. A plugin process gets no others. What one block alone needs is written in its environment_variables instead.
func WithEnvironmentVariables(names ...string) Option {
	return func(s *settings) error {
		if err := protocol.CheckEnvironmentNames(names); err != nil {
			return fmt.Errorf("WithEnvironmentVariables: %w", err)
		}
		s.environment = append(s.environment, names...)
		return nil
	}
}

// Define makes the definition of a plugin for the package of its kind, whose New calls it. C is the configuration, a
// struct with `recipe` tags (see spec.Of); P is the interface that plugins of the kind implement; outputs is the struct
// that every block of the kind gives; run runs one plugin value for one attempt of a block. Define panics when a tag is
// wrong, which is a mistake of the plugin's author that the first run shows.
func Define[C, P any](
	k kind.Kind, name, summary string, outputs any, factory func() P,
	run func(ctx context.Context, plugin P, req Request[C], host KindHost) error, opts ...Option,
) *Definition {
	def, err := tryDefine(k, name, summary, outputs, factory, run, opts)
	if err != nil {
		panic(fmt.Sprintf("define %s plugin %q: %v", k, name, err))
	}
	return def
}

func tryDefine[C, P any](
	k kind.Kind, name, summary string, outputs any, factory func() P,
	run func(context.Context, P, Request[C], KindHost) error, opts []Option,
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
	for attribute, value := range s.defaults {
		if err := schema.SetDefault(attribute, value); err != nil {
			return nil, fmt.Errorf("WithDefault: %w", err)
		}
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
		Schema: schema, Outputs: given, Capabilities: e.capabilities(), Packages: s.packages,
		Environment: s.environment, impl: e,
	}, nil
}
