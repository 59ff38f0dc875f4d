package python

import (
	"os"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
)

// Find is the interpreter that a block's program would run in here, of a recipe in dir whose plugin needs packages;
// empty: it needs none, none is there yet, or the block runs elsewhere.
func Find(b *schema.Block, packages sdk.Packages, dir string) string {
	if p := b.Meta.Placement; p != nil && (p.Executor != "" || p.Host != "") {
		return ""
	}
	var asked sdk.Runtime
	if b.Meta.Runtime != nil {
		asked = *b.Meta.Runtime
	}
	if packages.Empty() && len(asked.Requirements) == 0 && asked.Python == "" && asked.Venv == "" {
		return ""
	}
	path, err := interpreter.Find(asked, packages, dir, os.Getenv)
	if err != nil {
		return "" // `recipe doctor` says why
	}
	return path
}
