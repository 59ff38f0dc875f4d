package loop

import (
	"math/rand/v2"

	"github.com/recipe-rl/recipe/plugins/arithmetic"
	"github.com/recipe-rl/recipe/plugins/tiny/grpo"
	"github.com/recipe-rl/recipe/plugins/tiny/lm"
)

// Learn configures a run of GRPO on the training split.
type Learn struct {
	Seed uint64
	// Groups problems a step, Size completions each.
	Groups, Size int
	Trainer      grpo.Config
}

// DefaultLearn is what the quickstart runs.
func DefaultLearn(seed uint64) Learn {
	return Learn{Seed: seed, Groups: 16, Size: 16, Trainer: grpo.DefaultConfig()}
}

// Run trains from a checkpoint, which it does not change, until watch returns false; watch gets the
// metrics of each step and the policy after it.
func (l Learn) Run(from *lm.Checkpoint, watch func(m grpo.Metrics, c *lm.Checkpoint) bool) error {
	tokenizer, err := from.Tokenizer()
	if err != nil {
		return err
	}
	trainer, err := grpo.New(l.Trainer, from, from.Params)
	if err != nil {
		return err
	}
	problems, rng := arithmetic.Problems(arithmetic.Train), rand.New(rand.NewPCG(l.Seed, 3))
	for {
		s := sampler{trainer.Policy(), tokenizer, lm.Sampling{Temperature: 1, TopP: 1}, l.Size}
		chosen := make([]arithmetic.Problem, l.Groups)
		for i := range chosen {
			chosen[i] = problems[rng.IntN(len(problems))]
		}
		all, err := s.sample(chosen, rng.Uint64())
		if err != nil {
			return err
		}
		groups := make([]grpo.Group, len(all))
		for i := range all {
			groups[i].Name = chosen[i].Prompt()
			for k := range all[i] {
				groups[i].Sequences = append(groups[i].Sequences, all[i][k].sequence(s.score(chosen[i], &all[i][k])))
			}
		}
		m, err := trainer.Train(groups)
		if err != nil {
			return err
		}
		if !watch(m, trainer.State(from.Alphabet, from.Notes)) {
			return nil
		}
	}
}

// sequence is the completion as the trainer wants it: everything aligned with the tokens.
func (c *completion) sequence(score float64) grpo.Sequence {
	s := grpo.Sequence{Tokens: c.tokens, Score: score, Trained: make([]bool, len(c.tokens)),
		LogProbs: make([]float64, len(c.tokens))}
	for i, l := range c.logProbs {
		s.Trained[c.prompt+i], s.LogProbs[c.prompt+i] = true, l
	}
	return s
}
