// Package textarena is `environment "textarena"`: games of TextArena, of one player or several. The environment itself
// is in Python, in python/recipe_textarena.
package textarena

import (
	"embed"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/script"
)

var (
	//go:embed python/recipe_textarena/*.py
	code embed.FS
	//go:embed description.json
	description []byte
)

// Plugin defines `environment "textarena"`.
func Plugin() *sdk.Definition { return script.Bundled("textarena", description, source()) }

func source() script.Source {
	return script.Source{Tree: script.Folder(code, "python"), Module: "recipe_textarena.environment",
		Packages: sdk.Packages{Requirements: []string{"textarena==0.7.4"}, Needs: []string{"textarena"}}}
}
