package schema

import (
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/parse"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// PluginSchema describes a plugin to the language. It is read without starting a process.
type PluginSchema struct {
	Kind    kind.Kind
	Name    string
	Version string
	Digest  string // identifies the schema; part of what a saved plan is bound to
	Summary string
	Config  *spec.Schema
	Outputs *spec.Schema
	// Environment names the variables of the engine's environment that the plugin reads; NAME_* is a family.
	Environment []string
	Binary      string // digest of a plugin's program that is a separate binary; empty for others
	Source      string // of a plugin in a Python file: its name and hash, recorded with each block; empty for others
	UsesNodes   bool   // its blocks may have several machines
	// NoTaskScores is set for environments that are known to give no scores of single held-out tasks.
	NoTaskScores bool
	Prepares     bool // it has a stage before what its blocks refer to is ready
	// NotRun is set where the schema is from a file beside a program that was not run, as nobody has allowed it.
	NotRun *NotTrusted
}

// Plugins finds the schemas of plugins.
type Plugins interface {
	// Lookup returns the plugin of that kind and name. A nil schema and a nil error means that there is none.
	Lookup(k kind.Kind, name string) (*PluginSchema, error)
	// Names lists the plugins of a kind, for "did you mean" and completion.
	Names(k kind.Kind) []string
}

// Requirer is an optional interface of Plugins, for the binaries that a recipe names by path.
type Requirer interface {
	// Require reports that the plugin of that name is the binary at path, unless dev_overrides say otherwise.
	Require(name, path string)
}

// PackageRequirer is an optional interface of Plugins, for the packages that a recipe names by the address of a
// repository.
type PackageRequirer interface {
	// RequirePackage says that a plugin is the package that the lock of the recipe file names, unless dev_overrides say
	// otherwise.
	RequirePackage(recipe string, q parse.Requirement)
}

// ModuleFinder is an optional interface of Plugins, for modules from packages.
type ModuleFinder interface {
	// Module returns the folder of the module that the lock of the recipe file names.
	Module(recipe string, q parse.Requirement) (folder string, err error)
}

// Program is an optional interface of Plugins: the version of this program, for required_version.
type Program interface{ ProgramVersion() string }

// Validator is an optional interface of Plugins: plugins report errors that their schemas cannot express. No process is
// started for it; a plugin that is a separate binary validates when its block starts.
type Validator interface {
	// Validate returns the problems that the plugin finds in a block's value, parts of which may be unknown.
	Validate(k kind.Kind, plugin string, config cty.Value) ([]spec.Problem, error)
}
