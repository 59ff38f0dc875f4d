// Package define makes the definition of a plugin from its code, for the packages of the kinds.
package define

import (
	"context"
	"fmt"
	"strings"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/internal/attempt"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

var pluginName = lazyregexp.New(`^[a-z][a-z0-9_-]*$`)

// New makes the definition of a plugin for the package of its kind, whose own New calls it. C is the configuration, a
// struct with `recipe` tags (see spec.Of); P is the interface that plugins of the kind implement; outputs is the struct
// that every block of the kind gives; run runs one plugin value for one attempt of a block. New panics when a tag is
// wrong, which is a mistake of the plugin's author that the first run shows.
func New[C, P any](
	k kind.Kind, name, summary string, outputs any, factory func() P,
	run func(ctx context.Context, plugin P, req sdk.Request[C], host attempt.Host) error, opts ...sdk.Option,
) *sdk.Definition {
	def, err := Try(k, name, summary, outputs, factory, run, opts...)
	if err != nil {
		panic(fmt.Sprintf("define %s plugin %q: %v", k, name, err))
	}
	return def
}

// Try is New for a definition that is made of what a user has written: a mistake in it is an error.
func Try[C, P any](
	k kind.Kind, name, summary string, outputs any, factory func() P,
	run func(context.Context, P, sdk.Request[C], attempt.Host) error, opts ...sdk.Option,
) (*sdk.Definition, error) {
	if !pluginName.MatchString(name) {
		return nil, fmt.Errorf("the name must match %s", pluginName)
	}
	var config C
	schema, err := spec.Of(config)
	if err != nil {
		return nil, fmt.Errorf("its configuration: %w", err)
	}
	given, err := spec.Of(outputs)
	if err != nil {
		return nil, fmt.Errorf("its outputs: %w", err)
	}
	// Docstrings end with a full stop; a summary, which stands in tables, does not.
	summary = strings.TrimSuffix(strings.TrimSpace(summary), ".")
	d := &sdk.Definition{Kind: k, Name: name, Version: "0.1.0", Summary: summary, Schema: schema, Outputs: given}
	for _, opt := range opts {
		if err := opt(d); err != nil {
			return nil, err
		}
	}
	for _, a := range d.Outputs.Attributes {
		a.Computed = true
	}
	e := &erased[C, P]{def: d, factory: factory, start: run}
	d.Capabilities, d.Implementation = e.capabilities(), e
	return d, nil
}
