// Package gymnasium is `environment "gymnasium"`: environments of Gymnasium, played in text. The environment itself is
// in Python, in python/recipe_gymnasium.
package gymnasium

import (
	"embed"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/script"
)

var (
	//go:embed python/recipe_gymnasium/*.py
	code embed.FS
	//go:embed description.json
	description []byte
)

// Plugin defines `environment "gymnasium"`.
func Plugin() *sdk.Definition { return script.Bundled("gymnasium", description, source()) }

func source() script.Source {
	return script.Source{Tree: script.Folder(code, "python"), Module: "recipe_gymnasium.environment",
		Packages: sdk.Packages{Requirements: []string{"gymnasium==1.4.0"}, Needs: []string{"gymnasium"}}}
}
