package schema

import (
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Validator is an optional interface of Plugins: plugins report errors that their schemas cannot express. No process is
// started for it; a plugin that is a separate binary validates when its block starts.
type Validator interface {
	// Validate returns the problems that the plugin finds in a block's value, parts of which may be unknown.
	Validate(k kind.Kind, plugin string, config cty.Value) ([]spec.Problem, error)
}
