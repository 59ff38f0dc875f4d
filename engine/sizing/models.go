package sizing

import (
	"fmt"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/sdk/kind"
)

// models compares the trained with the served models.
func (c *checker) models() {
	for _, s := range c.of(kind.Sync) {
		for _, n := range s.Needs {
			e, external := c.external[n.On]
			if external && n.On.Kind == kind.Inference && !sets(e, "control_url") {
				c.add("error", s.Addr, n.On.String()+" takes no weights", noControl+". Let recipe start the server, or leave out "+
					"the sync block.")
			}
		}
		for _, t := range c.needed(s, kind.Trainer) {
			for _, i := range c.needed(s, kind.Inference) {
				if _, why := Fits(t.Facts, i.Facts); why != "" {
					c.add("error", s.Addr, fmt.Sprintf("weights of %s cannot be loaded by %s", t.Addr, i.Addr), why+
						". docs/compatibility.md shows which trainers and engines go together.")
				}
				c.logprobs(t, i)
				c.precision(s, t, i)
				for _, name := range []string{"model", "tokenizer"} {
					a, b := t.Facts[name], i.Facts[name]
					if a == "" || b == "" || a == b {
						continue
					}
					c.add("error", s.Addr, fmt.Sprintf("%s and %s disagree on %s", t.Addr, i.Addr, name),
						fmt.Sprintf(
							"%s has %q, %s has %q: their tokens would differ. Use one variable for both.",
							t.Addr, a, i.Addr, b))
				}
			}
		}
	}
}

// logprobs compares the log-probabilities that an inference server sends with those that the trainer expects.
func (c *checker) logprobs(t, i sized) {
	a, b := t.Facts["logprobs_mode"], i.Facts["logprobs_mode"]
	if a == "" || b == "" || a == b {
		return
	}
	c.add("error", t.Addr, fmt.Sprintf("%s sends %s log-probabilities, %s expects %s ones", i.Addr, b, t.Addr,
		a),
		"They differ when the temperature is not 1 or top_p is below 1, and every importance ratio would be silently "+
			"wrong. Set logprobs_mode of both to the same value, preferably processed.")
}

// precision describes what a weight update can carry: 16 bits round away the small steps of a trainer with 32.
func (c *checker) precision(s, t, i sized) {
	trained, published, served := t.Facts["dtype"], t.Facts["publish_dtype"], i.Facts["dtype"]
	if trained == "" || published == "" {
		return
	}
	if trained == "float32" && published != trained {
		c.add("warning", s.Addr, fmt.Sprintf("weights are trained in %s and published in %s", trained, published),
			"Most steps at a learning rate around 1e-5 do not change a 16-bit weight, so inference would keep nearly "+
				"the old policy. Remove publish_dtype.")
		return
	}
	if served != "" && served != published {
		c.add("info", s.Addr, fmt.Sprintf("weights travel in %s, %s holds them in %s", published, i.Addr, served),
			"The server rounds the weights, which can lose small updates. The check after each update allows for it. "+
				"dtype and quantization of the inference block decide in what it holds them.")
		c.coarse(s, t, i)
		return
	}
	c.add("info", s.Addr, fmt.Sprintf("weights travel in %s, the precision of training", published), "")
}

// coarse: what is sampled by a policy in fewer bits than the trained one is as if an older policy had sampled it.
func (c *checker) coarse(s, t, i sized) {
	corrects, known := t.Facts["corrects"]
	if served := i.Facts["dtype"]; strings.HasPrefix(served, "fp8") && known && corrects == "" {
		c.add("warning", s.Addr, fmt.Sprintf("%s samples in %s, and %s corrects for no difference", i.Addr, served, t.Addr),
			"Log-probabilities in float8 are a few tenths apart from the trainer's, which biases gradients. Leave the "+
				"correction of the trainer at its default (trainer \"grpo\": correction.importance), or quantization out.")
	}
}

// templates compares the chat templates of the server, of environments that render chats themselves, and of the trained
// checkpoints. Differences may be intended, so they are warnings; nothing else would show them.
func (c *checker) templates() {
	for _, e := range c.of(kind.Environment) {
		for _, i := range c.needed(e, kind.Inference) {
			mine, from := e.Facts["chat_template"], e.Facts["chat_template_from"]
			if mine == "" && e.Facts["renders_chat"] == "true" {
				mine, from = i.Facts["tokenizer_chat_template"], "the tokenizer of "+i.Addr.String()
			}
			if served := i.Facts["chat_template"]; !share(mine, served) {
				c.add("warning", e.Addr, fmt.Sprintf("%s and %s use different chat templates",
					e.Addr, i.Addr),
					fmt.Sprintf(
						"The environment renders its rollouts itself, with %s (%s); /v1/chat/completions uses %s "+
							"(%s). Rollouts and evaluations can differ silently: set the same template for both, with "+
							"chat_template of the one and tokenizer of the other.",
						from, mine, i.Facts["chat_template_from"], served))
			}
		}
	}
	for _, s := range c.of(kind.Sync) {
		for _, t := range c.needed(s, kind.Trainer) {
			for _, i := range c.needed(s, kind.Inference) {
				if saved, served := t.Facts["chat_template"], i.Facts["chat_template"]; !share(saved, served) {
					c.add("warning", s.Addr,
						fmt.Sprintf("checkpoints of %s have another chat template than %s uses", t.Addr, i.Addr),
						fmt.Sprintf(
							"The policy is trained with the template of %s (%s), but its checkpoints contain the "+
								"template of %s (%s). Copy the template with a checkpoint when you serve it.",
							i.Facts["chat_template_from"], served, t.Facts["chat_template_from"], saved))
				}
			}
		}
	}
}

// share reports whether two lists of digests have one in common. An empty list is unknown and matches everything.
func share(a, b string) bool {
	return a == "" || b == "" || slices.ContainsFunc(strings.Fields(a),
		func(d string) bool { return slices.Contains(strings.Fields(b), d) })
}
