package atropos

import "github.com/recipe-rl/recipe/sdk"

// packages is what `recipe init` prepares: atroposlib, which brings datasets and math-verify, for environments that need nothing else.
// Others list their runtime.requirements.
func packages(bool) sdk.Packages {
	return sdk.Packages{Requirements: []string{"atroposlib==0.4.0"}}
}
