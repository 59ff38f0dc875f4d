package loop

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/recipe-rl/recipe/plugins/arithmetic"
	"github.com/recipe-rl/recipe/plugins/tiny/lm"
)

// Shape is the quickstart model: 0.12 million weights.
func Shape() lm.Config {
	return lm.Config{Vocabulary: len(lm.ASCII) + int(lm.FirstCharacter), Width: 64, Layers: 2, Heads: 4, Hidden: 256,
		Context: 64}
}

// WarmUp configures the supervised training that comes before reinforcement learning, on problems
// of the training split only.
type WarmUp struct {
	Seed  uint64
	Steps int
	Batch int
	Rate  float64
}

// Run trains a fresh model and calls watch, if not nil, after every step; watch ends it by
// returning false.
func (w WarmUp) Run(watch func(step int, c *lm.Checkpoint) bool) (*lm.Checkpoint, error) {
	params, err := lm.NewParams(Shape(), w.Seed)
	if err != nil {
		return nil, err
	}
	tokenizer, err := lm.NewTokenizer(lm.ASCII)
	if err != nil {
		return nil, err
	}
	c := &lm.Checkpoint{Params: params, Alphabet: lm.ASCII, Notes: map[string]string{
		"task": fmt.Sprintf("addition below %d, %q split", arithmetic.Limit, arithmetic.Train),
		"made": fmt.Sprintf("supervised warm-up, seed %d, batch %d, rate %g", w.Seed, w.Batch, w.Rate),
	}}
	gradient, adam := lm.NewGradient(params.Config, 2), lm.NewAdam(lm.DefaultAdam(), len(params.Flat()))
	problems, rng := arithmetic.Problems(arithmetic.Train), rand.New(rand.NewPCG(w.Seed, 2))
	for step := 1; step <= w.Steps; step++ {
		var batch [][]int32
		for range w.Batch {
			p := problems[rng.IntN(len(problems))]
			tokens, err := tokenizer.Encode(p.Prompt() + p.Answer())
			if err != nil {
				return nil, err
			}
			batch = append(batch, append(tokens, lm.End))
		}
		gradient.Zero()
		gradient.Accumulate(params, batch, imitate(batch, len(problems[0].Prompt())))
		if _, err := adam.Step(params.Flat(), gradient.Sum(), w.Rate*min(1, float64(step)/20), 1); err != nil {
			return nil, err
		}
		if watch != nil && !watch(step, c) {
			break
		}
	}
	return c, nil
}

// imitate is the cross-entropy of everything after the prompt, averaged over those tokens.
func imitate(batch [][]int32, prompt int) lm.LossFunc {
	tokens := 0
	for _, s := range batch {
		tokens += len(s) - prompt
	}
	return func(seq, pos int, logits, dlogits []float32) {
		if pos+1 < prompt || pos+1 >= len(batch[seq]) {
			return
		}
		lse := lm.LogSumExp(logits)
		for i, v := range logits {
			dlogits[i] += float32(math.Exp(float64(v)-lse) / float64(tokens))
		}
		dlogits[batch[seq][pos+1]] -= 1 / float32(tokens)
	}
}
