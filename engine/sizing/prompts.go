package sizing

import (
	"fmt"
	"slices"

	"github.com/recipe-rl/recipe/sdk/kind"
)

// leastPrompts compares the first prompt of an agent with the blocks that must take it. The figure is about right, and
// settings of the agent may change it, so that nothing is refused.
func (c *checker) leastPrompts() {
	for _, e := range c.of(kind.Environment) {
		least, ok := e.fact("least_prompt_tokens")
		if !ok {
			continue
		}
		warn := func(other sized, fact, takes string) {
			if limit, ok := other.fact(fact); ok && least >= limit {
				c.add("warning", e.Addr, fmt.Sprintf("the first prompt of %s has about %d tokens; %s %s %d",
					e.Facts["least_prompt_of"], least, other.Addr, takes, limit),
					fmt.Sprintf("Its rollouts would end at their first call. Raise %s, or choose an agent with a shorter prompt: "+
						"recipe env agents lists them. A token was taken for four bytes, and arguments of the agent may shorten "+
						"its prompt.", other.setting(fact)))
			}
		}
		for _, i := range c.needed(e, kind.Inference) {
			warn(i, "max_model_len", "has a context of")
		}
		for _, t := range c.of(kind.Trainer) {
			trains := func(o sized) bool { return o.Addr == e.Addr }
			if slices.ContainsFunc(c.needed(t, kind.Environment), trains) {
				warn(t, "max_length", "takes sequences of")
			}
		}
	}
}
