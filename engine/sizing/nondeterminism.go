package sizing

import (
	"fmt"
	"strings"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// nondeterminism says of each block what besides seeds decides what it does.
func (c *checker) nondeterminism() map[addr.Block][]string {
	out := map[addr.Block][]string{}
	for a := range c.external {
		out[a] = []string{"it runs elsewhere, so this plan does not know"}
	}
	for _, a := range c.order {
		b := c.blocks[a]
		causes, said := b.Facts["nondeterminism"]
		switch {
		case a.Kind == kind.Executor:
		case a.Kind == kind.Trajectories:
			out[a] = c.mixing(a)
		case !said:
			out[a] = []string{fmt.Sprintf("the plugin %s does not say whether equal seeds give equal results", a.Plugin)}
		case causes != "":
			out[a] = strings.Split(causes, "\n")
		}
	}
	return out
}

// mixing is what time decides of the batches of a trajectory API.
func (c *checker) mixing(api addr.Block) []string {
	filling := 0
	for _, e := range c.of(kind.Environment) {
		if e.onlyEvaluated() {
			continue
		}
		for _, n := range e.Needs {
			if n.On == api {
				filling++
				break
			}
		}
	}
	if filling < 2 {
		return nil
	}
	return []string{fmt.Sprintf("%d environments fill its batches, so time decides whose groups are in which", filling)}
}

// onlyEvaluated reports whether an environment samples nothing for training.
func (s sized) onlyEvaluated() bool {
	var c struct {
		EvaluationOnly bool `recipe:"evaluation_only"`
	}
	err := (spec.Ref{Address: s.Addr.String(), Values: s.Value}).Decode(&c)
	return err == nil && c.EvaluationOnly
}
