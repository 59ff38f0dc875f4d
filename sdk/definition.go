package sdk

import (
	"fmt"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/protocol"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Definition is a plugin, type-erased: what it is called, what its block looks like, and how to run one. The function
// New of the kind's package makes it: inference.New, trainer.New, environment.New, trajectories.New, sync.New.
type Definition struct {
	Kind         kind.Kind
	Name         string
	Version      string
	Summary      string       // one sentence without a full stop
	Schema       *spec.Schema // of the block's configuration
	Outputs      *spec.Schema
	Capabilities []string                // protocol.CanPrepare, …
	Packages     func(gpu bool) Packages // Python packages that the program needs; nil: none
	Environment  []string                // variables of the environment that it reads; see WithEnvironmentVariables
	Implementation
}

// ID is the definition's kind and name, KIND/NAME.
func (d *Definition) ID() string { return string(d.Kind) + "/" + d.Name }

// Implementation is what the SDK makes of a plugin's code. Engines call it; a plugin's author does not.
type Implementation interface {
	// Validate runs the plugin's own checks on a block's values. Unknown values are allowed: only what is wrong for every
	// value of theirs is a problem; the rest is checked again at the start. It touches nothing.
	Validate(config cty.Value) ([]spec.Problem, error)
	// Plan asks the plugin what the block will need. Values that are unknown are passed as their zero values,
	// references among them, so that an estimate can be made before anything runs.
	Plan(config cty.Value, placement Placement) (Estimate, []spec.Problem, error)
	// Serve serves the protocol of plugins in this process until the process has to end.
	Serve() error
}

// Option changes a Definition while it is made.
type Option func(*Definition) error

// WithVersion sets the plugin's own version, a semantic version; default "0.1.0".
func WithVersion(version string) Option {
	return func(d *Definition) error {
		if version == "" {
			return fmt.Errorf("WithVersion: the version is empty; give one such as \"1.2.0\"")
		}
		d.Version = version
		return nil
	}
}

// WithDoc sets a longer description of the block, in plain text.
func WithDoc(doc string) Option {
	return func(d *Definition) error { d.Schema.Doc = doc; return nil }
}

// WithOutputs sets what the block gives to other blocks, when that is more than its kind gives: a struct with `recipe`
// tags that embeds the struct of the kind (outputs.Inference, outputs.Trainer, …). Host.Ready is then called with such
// a struct.
func WithOutputs(outputs any) Option {
	return func(d *Definition) (err error) {
		if d.Outputs, err = spec.Of(outputs); err != nil {
			return fmt.Errorf("WithOutputs: %w", err)
		}
		return nil
	}
}

// WithDefault changes the default of one attribute, for a configuration that embeds a struct with another default:
// WithDefault("group_size", "16"). The value is written as in the tag `default`.
func WithDefault(attribute, value string) Option {
	return func(d *Definition) error {
		if err := d.Schema.SetDefault(attribute, value); err != nil {
			return fmt.Errorf("WithDefault: %w", err)
		}
		return nil
	}
}

// Dynamic is a configuration with attributes that are not fields of its struct: those of WithSchema.
type Dynamic interface {
	// SetBody gets the whole body of the block, after the struct's fields have been set.
	SetBody(body cty.Value)
}

// WithSchema adds attributes and nested blocks that the configuration's struct has no fields for, for a plugin whose
// attributes are known only when it runs. The configuration gets their values as a Dynamic.
func WithSchema(schema *spec.Schema) Option {
	return func(d *Definition) error {
		if err := d.Schema.Merge(schema); err != nil {
			return fmt.Errorf("WithSchema: %w", err)
		}
		return nil
	}
}

// WithEnvironmentVariables says which variables of the environment in which recipe runs the plugin reads, beyond those
// that every program gets (docs/plugin-protocol.md lists them): HF_TOKEN, say, or MYTOOL_* for all that begin with
// MYTOOL_. A plugin process gets no others. What one block alone needs is written in its environment_variables instead.
func WithEnvironmentVariables(names ...string) Option {
	return func(d *Definition) error {
		if err := protocol.CheckEnvironmentNames(names); err != nil {
			return fmt.Errorf("WithEnvironmentVariables: %w", err)
		}
		d.Environment = append(d.Environment, names...)
		return nil
	}
}

// WithKnownOutput says that an output is the first of some attributes that is set (see spec.Attribute.SameAs), so that
// a plan knows it. It comes after WithOutputs.
func WithKnownOutput(output string, attributes ...string) Option {
	return func(d *Definition) error {
		a := d.Outputs.Attribute(output)
		if a == nil {
			return fmt.Errorf("WithKnownOutput: there is no output %q", output)
		}
		for _, name := range attributes {
			if d.Schema.Attribute(name) == nil {
				return fmt.Errorf("WithKnownOutput: there is no attribute %q", name)
			}
		}
		a.SameAs = attributes
		return nil
	}
}

// WithMetrics names which metrics blocks of the plugin report (Host.Metrics), so that a plan can check the names that
// alerts and stop rules use: sdk.WithMetrics(spec.Metrics("reward/{mean,std}", "", "of the batch")...). A plugin that
// reports others as well, whose names are not known before it runs, adds the name *. WithMetrics() is for one whose
// blocks report none.
func WithMetrics(metrics ...spec.Metric) Option {
	return func(d *Definition) error {
		if d.Schema.Metrics == nil {
			d.Schema.Metrics = []spec.Metric{}
		}
		d.Schema.Metrics = append(d.Schema.Metrics, metrics...)
		return nil
	}
}

// WithPackages says which Python packages the plugin's program needs on a machine with or without a GPU. They are what
// a block gets whose recipe names no interpreter and no requirements of its own.
func WithPackages(packages func(gpu bool) Packages) Option {
	return func(d *Definition) error { d.Packages = packages; return nil }
}
