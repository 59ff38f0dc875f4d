package sizing

import (
	"fmt"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// teachers compares trainers with the inference blocks that they ask for log-probabilities, by the fact "teacher": a
// trainer may refer to others, as for the name of their model.
func (c *checker) teachers() {
	for _, t := range c.of(kind.Trainer) {
		teacher, err := addr.Parse(t.Facts["teacher"])
		if err != nil {
			continue
		}
		c.updated(t, teacher)
		if i, ok := c.blocks[teacher]; ok {
			c.reads(t, i)
		}
		c.warm(t)
	}
}

// updated finds a teacher whose weights a sync block replaces.
func (c *checker) updated(t sized, teacher addr.Block) {
	for _, s := range c.of(kind.Sync) {
		if slices.ContainsFunc(s.Needs, func(n schema.Need) bool { return n.On == teacher }) {
			c.add("error", t.Addr, fmt.Sprintf("%s is no fixed reference: %s updates its weights", teacher, s.Addr),
				"A reference stays as it is while the policy moves. Serve it by an inference block of its own.")
		}
	}
}

// reads looks whether a teacher can be asked for the longest sequence.
func (c *checker) reads(t, i sized) {
	length, ok := t.fact("max_length")
	limit, known := i.fact("max_model_len")
	if ok && known && length+1 > limit {
		c.add("error", t.Addr, fmt.Sprintf("it asks about sequences of up to %d tokens; %s has a context of %d", length,
			i.Addr, limit), fmt.Sprintf("The engine wants room for one token more: raise %s to %d, or lower max_length to %d.",
			i.setting("max_model_len"), length+1, limit-1))
	}
	if i.Facts["prompt_logprobs"] == "false" {
		c.add("error", t.Addr, fmt.Sprintf("%s gives no log-probabilities of prompts", i.Addr),
			"Its API answers without prompt_logprobs. Serve the reference by inference \"vllm\".")
	}
}

// warm finds samples of a temperature at which a teacher has no log-probabilities.
func (c *checker) warm(t sized) {
	for _, e := range c.needed(t, kind.Environment) {
		if at := e.Facts["temperature"]; at != "" && at != "1" && !strings.HasPrefix(t.Facts["logprobs_mode"], "raw") {
			c.add("error", e.Addr, fmt.Sprintf("the reference of %s has log-probabilities at temperature 1, not at %s", t.Addr,
				at), "Both sides of the loss must be at one temperature. Set temperature = 1 here, or logprobs_mode = \"raw\" in "+
				"correction of the trainer and \"raw_logprobs\" in inference.")
		}
	}
}
