// Package script makes an environment plugin of Python code: a class that derives from recipe_sdk.Environment, in a
// file that a recipe names, or in one that a plugin carries in its binary.
//
// The plugin process is a Go program as for every other environment. It samples, builds the groups and posts them with
// package environment, so groups, versions, masks and metrics do not depend on the language; it starts one Python
// process, the worker, and calls the author's methods in it over an inherited socket. The worker needs nothing but
// Python itself, and ends when the plugin process does.
package script

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Description is what an environment says of itself, as recipe_sdk.environment.describe writes it.
type Description struct {
	Class    string            `json:"class"`
	Version  string            `json:"version"`
	Summary  string            `json:"summary"`
	Doc      string            `json:"doc,omitempty"`
	Schema   json.RawMessage   `json:"schema"`                // of the attributes that are its own, see spec.Parse
	Defaults map[string]string `json:"defaults,omitempty"`    // of attributes that every environment has
	HeldOut  bool              `json:"held_out,omitempty"`    // it can be evaluated
	Rollout  bool              `json:"rollout,omitempty"`     // it has rollouts of its own
	Reads    []string          `json:"environment,omitempty"` // environment variables
}

// Source is where the Python code of an environment is. Either File or Tree and Module are set.
type Source struct {
	File string // absolute path of the file; its folder is on Python's path
	Copy string // absolute path of a copy that is run instead when File is not what was described
	// Digests of the files that the environment was described with, by their path relative to the folder of File.
	Digests map[string]string

	Tree   fs.FS  // Python packages that the plugin carries in its binary
	Module string // the module in Tree that holds the environment

	Packages sdk.Packages // what `recipe init` installs for it
}

// Config is the body of an environment written in Python: what every environment has, and what its settings class adds.
type Config struct {
	environment.Settings
	body cty.Value
}

// RolloutConfig is the body of an environment written in Python that has rollouts of several turns.
type RolloutConfig struct {
	environment.Settings
	environment.RolloutSettings
	body cty.Value
}

var (
	_ sdk.Dynamic               = (*Config)(nil)
	_ sdk.Dynamic               = (*RolloutConfig)(nil)
	_ environment.RolloutConfig = RolloutConfig{}
	_ environment.Seeded        = Config{}
	_ environment.Seeded        = RolloutConfig{}
)

// SetBody implements sdk.Dynamic.
func (c *Config) SetBody(body cty.Value) { c.body = body }

// SetBody implements sdk.Dynamic.
func (c *RolloutConfig) SetBody(body cty.Value) { c.body = body }

func (c Config) values() cty.Value        { return c.body }
func (c RolloutConfig) values() cty.Value { return c.body }

// SamplingSeed implements environment.Seeded: it is the author's seed, where there is such a setting.
func (c Config) SamplingSeed() int64 { return seedOf(c.body) }

// SamplingSeed implements environment.Seeded.
func (c RolloutConfig) SamplingSeed() int64 { return seedOf(c.body) }

// Repeats implements environment.Seeded: what Python code does is not known.
func (Config) Repeats() bool { return false }

// Repeats implements environment.Seeded.
func (RolloutConfig) Repeats() bool { return false }

func seedOf(body cty.Value) int64 {
	if body == cty.NilVal || body.IsNull() || !body.IsKnown() || !body.Type().HasAttribute("seed") {
		return 0
	}
	seed := body.GetAttr("seed")
	if seed.IsNull() || !seed.IsKnown() || seed.Type() != cty.Number {
		return 0
	}
	n, _ := seed.AsBigFloat().Int64()
	return n
}

// config is what both have.
type config interface {
	environment.Config
	ScoreLimit() time.Duration
	values() cty.Value
}

// Define makes the definition of an environment plugin. The error says what is wrong with the description.
func Define(name string, d Description, s Source, opts ...sdk.Option) (*sdk.Definition, error) {
	own, err := spec.Parse(d.Schema)
	if err != nil {
		return nil, fmt.Errorf("the settings of %s: %w", d.Class, err)
	}
	all := []sdk.Option{sdk.WithVersion(d.Version), sdk.WithDoc(d.Doc), sdk.WithSchema(own),
		sdk.WithEnvironmentVariables(d.Reads...)}
	if !s.Packages.Empty() {
		all = append(all, sdk.WithPackages(func(bool) sdk.Packages { return s.Packages }))
	}
	for attribute, value := range d.Defaults {
		all = append(all, sdk.WithDefault(attribute, value))
	}
	all = append(all, opts...)
	o := opener{name: name, schema: own, source: s}
	switch {
	case d.Rollout && d.HeldOut:
		return environment.TryDefineRollouts(name, d.Summary, opens[RolloutConfig](o, asEvaluatedPlayer), all...)
	case d.Rollout:
		return environment.TryDefineRollouts(name, d.Summary, opens[RolloutConfig](o, asPlayer), all...)
	case d.HeldOut:
		return environment.TryDefine(name, d.Summary, opens[Config](o, asEvaluated), all...)
	}
	return environment.TryDefine(name, d.Summary, opens[Config](o, asProgram), all...)
}

// Folder is a folder of embedded files, for Source.Tree. It panics when name is not a valid path.
func Folder(files embed.FS, name string) fs.FS {
	tree, err := fs.Sub(files, name)
	if err != nil {
		panic(fmt.Sprintf("folder %s of embedded files: %v", name, err))
	}
	return tree
}

// Bundled makes the definition of an environment that is part of a binary. Description is the JSON file that
// `go generate` or the test of the plugin writes with Describe, so that no Python is needed to read the schema. It
// panics when that file is wrong, which the first test shows.
func Bundled(name string, description []byte, s Source, opts ...sdk.Option) *sdk.Definition {
	var d Description
	err := json.Unmarshal(description, &d)
	if err == nil {
		var def *sdk.Definition
		if def, err = Define(name, d, s, opts...); err == nil {
			return def
		}
	}
	panic(fmt.Sprintf("define environment plugin %q: %v", name, err))
}
