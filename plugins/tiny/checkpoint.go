package tiny

import (
	_ "embed" // for the checkpoint
	"fmt"

	"github.com/recipe-rl/recipe/plugins/tiny/lm"
)

//go:generate go run ../../scripts/tinycheckpoint -o warm.tiny
//go:embed warm.tiny
var warm []byte

// Warm is the checkpoint that the program ships with: a model of 0.12 million weights that has seen
// a little supervised addition on the training split of package arithmetic, and answers about a
// third of the held-out problems when sampled. Each call gives fresh weights.
func Warm() (*lm.Checkpoint, error) {
	c, err := lm.Decode(warm)
	if err != nil {
		return nil, fmt.Errorf("the checkpoint built into this program: %w; rebuild the program", err)
	}
	c.Widen(longestContext)
	return c, nil
}

// longestContext is the context of the built-in model, in tokens: a token is a character of ASCII, or a byte.
const longestContext = 8192
