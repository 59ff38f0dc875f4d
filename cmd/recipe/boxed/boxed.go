// Package boxed makes recipe the first process of a sandbox, where it was started as one, before most packages of the
// engine are initialized: each sandbox waits for it. Package early explains the order; this one imports more, and is
// apart from it so that `recipe version` does not wait.
package boxed

import "github.com/recipe-rl/recipe/sdk/kit/sandbox/inside"

func init() { inside.Main() }
