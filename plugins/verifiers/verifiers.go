// Package verifiers is `environment "verifiers"`: tasksets and environments of Prime Intellect's verifiers. The
// environment itself is in Python, in python/recipe_verifiers; python/recipe_chat is a harness that verifiers finds by
// its name.
package verifiers

import (
	"embed"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/script"
)

var (
	//go:embed python/*/*.py
	code embed.FS
	//go:embed description.json
	description []byte
)

// Plugin defines `environment "verifiers"`.
func Plugin() *sdk.Definition { return script.Bundled("verifiers", description, source()) }

func source() script.Source {
	return script.Source{Tree: script.Folder(code, "python"), Module: "recipe_verifiers.environment",
		Packages: sdk.Packages{Requirements: []string{"verifiers==0.4.0"}, Needs: []string{"verifiers"},
			Supported: []string{"verifiers>=0.4"}}}
}
