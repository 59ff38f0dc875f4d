// Package reasoninggym is `environment "reasoning_gym"`: the procedural tasks of reasoning-gym, which verifies the
// answers. The environment itself is in Python, in python/recipe_reasoning_gym.
package reasoninggym

import (
	"embed"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/script"
)

var (
	//go:embed python/recipe_reasoning_gym/*.py
	code embed.FS
	//go:embed description.json
	description []byte
)

// Plugin defines `environment "reasoning_gym"`.
func Plugin() *sdk.Definition { return script.Bundled("reasoning_gym", description, source()) }

func source() script.Source {
	return script.Source{Tree: script.Folder(code, "python"), Module: "recipe_reasoning_gym.gym",
		Packages: sdk.Packages{Requirements: []string{"reasoning-gym==0.1.25"}, Needs: []string{"reasoning-gym"}}}
}
