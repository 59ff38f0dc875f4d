package sizing

import (
	"fmt"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/sdk/kind"
)

// models compares what a trainer trains with what inference serves.
func (c *checker) models() {
	for _, s := range c.of(kind.Sync) {
		for _, t := range c.needed(s, kind.Trainer) {
			for _, i := range c.needed(s, kind.Inference) {
				c.logprobs(t, i)
				c.precision(s, t, i)
				for _, name := range []string{"model", "tokenizer"} {
					a, b := t.Facts[name], i.Facts[name]
					if a == "" || b == "" || a == b {
						continue
					}
					c.add("error", s.Addr, fmt.Sprintf("%s and %s disagree on %s", t.Addr, i.Addr, name),
						fmt.Sprintf(
							"%s has %q, %s has %q: tokens sampled by one would mean something else to the other. Use "+
								"one variable for both.", t.Addr, a, i.Addr, b))
				}
			}
		}
	}
}

// logprobs compares what an inference server calls a log-probability with what the trainer takes it for.
func (c *checker) logprobs(t, i sized) {
	a, b := t.Facts["logprobs_mode"], i.Facts["logprobs_mode"]
	if a == "" || b == "" || a == b {
		return
	}
	c.add("error", t.Addr, fmt.Sprintf("%s sends %s log-probabilities, %s takes them for %s ones", i.Addr, b, t.Addr,
		a),
		"They differ as soon as the temperature is not 1 or top_p cuts, and every importance ratio would be wrong "+
			"without a word. Set logprobs_mode of both to the same, best to processed.")
}

// precision says what a weight update can carry: 16 bits round away the small steps of a trainer that keeps 32.
func (c *checker) precision(s, t, i sized) {
	trained, published, served := t.Facts["dtype"], t.Facts["publish_dtype"], i.Facts["dtype"]
	if trained == "" || published == "" {
		return
	}
	if trained == "float32" && published != trained {
		c.add("warning", s.Addr, fmt.Sprintf("weights are trained in %s and published in %s", trained, published),
			"Most steps at a learning rate around 1e-5 do not change a 16-bit weight at all, so inference would go "+
				"on with nearly the old policy. Leave publish_dtype out.")
		return
	}
	if served != "" && served != published {
		c.add("info", s.Addr, fmt.Sprintf("weights travel in %s, %s holds them in %s", published, i.Addr, served),
			"The server rounds what it gets, small updates with it. The proof after each update allows for that; "+
				"dtype of the inference block changes it.")
		return
	}
	c.add("info", s.Addr, fmt.Sprintf("weights travel in %s, as they are trained", published), "")
}

// templates compares how conversations become tokens: in the server, in environments that do it themselves, and in
// whatever serves the trained checkpoint later. Differences may be wanted, so they are warnings, but nothing else would
// ever show them.
func (c *checker) templates() {
	for _, e := range c.of(kind.Environment) {
		for _, i := range c.needed(e, kind.Inference) {
			mine, from := e.Facts["chat_template"], e.Facts["chat_template_from"]
			if mine == "" && e.Facts["renders_chat"] == "true" {
				mine, from = i.Facts["tokenizer_chat_template"], "the tokenizer of "+i.Addr.String()
			}
			if served := i.Facts["chat_template"]; !share(mine, served) {
				c.add("warning", e.Addr, fmt.Sprintf("%s and %s render conversations by different chat templates",
					e.Addr, i.Addr),
					fmt.Sprintf(
						"The environment renders its rollouts itself, by %s (%s); what asks /v1/chat/completions "+
							"gets %s (%s). Rollouts and evaluations can differ without a word: give both the same "+
							"template, by chat_template of the one and tokenizer of the other.",
						from, mine, i.Facts["chat_template_from"], served))
			}
		}
	}
	for _, s := range c.of(kind.Sync) {
		for _, t := range c.needed(s, kind.Trainer) {
			for _, i := range c.needed(s, kind.Inference) {
				if saved, served := t.Facts["chat_template"], i.Facts["chat_template"]; !share(saved, served) {
					c.add("warning", s.Addr,
						fmt.Sprintf("checkpoints of %s will carry another chat template than %s uses", t.Addr, i.Addr),
						fmt.Sprintf(
							"The policy is trained on conversations in the form of %s (%s), but its checkpoints come "+
								"with the template of %s (%s). Whoever serves one must be given the template, too.",
							i.Facts["chat_template_from"], served, t.Facts["chat_template_from"], saved))
				}
			}
		}
	}
}

// share says whether two lists of digests have one in common. An empty list is not known, and agrees with everything.
func share(a, b string) bool {
	return a == "" || b == "" || slices.ContainsFunc(strings.Fields(a),
		func(d string) bool { return slices.Contains(strings.Fields(b), d) })
}
