package main

import (
	"github.com/recipe-rl/recipe/plugins/atropos"
	"github.com/recipe-rl/recipe/plugins/sync"
	"github.com/recipe-rl/recipe/plugins/vllm"
	"github.com/recipe-rl/recipe/sdk"
)

// builtins are the plugins inside this binary. This is the one file that names them.
func builtins() []*sdk.Definition {
	return []*sdk.Definition{
		atropos.Plugin(),
		sync.Definition(),
		vllm.Plugin(),
	}
}
