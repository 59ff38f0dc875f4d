// Package loop runs the embedded model's reinforcement learning inside one process: sample, score,
// train. It makes and measures the checkpoint that ships with the program, and lets tests show that
// the parts learn together. The plugins do the same work as separate processes.
package loop

import (
	"math/rand/v2"
	"runtime"
	"sync"

	"github.com/recipe-rl/recipe/plugins/arithmetic"
	"github.com/recipe-rl/recipe/plugins/tiny/lm"
)

// completion is one sampled answer.
type completion struct {
	tokens   []int32 // prompt and answer
	prompt   int     // tokens of the prompt
	logProbs []float64
	ended    bool
}

// sampler draws completions of problems. Its results depend on the seed and the weights only.
type sampler struct {
	params    *lm.Params
	tokenizer *lm.Tokenizer
	sampling  lm.Sampling
	n         int // completions a problem
}

// sample returns n completions for each problem, in order.
func (s *sampler) sample(problems []arithmetic.Problem, seed uint64) ([][]completion, error) {
	out := make([][]completion, len(problems))
	for i, p := range problems {
		prompt, err := s.tokenizer.Encode(p.Prompt())
		if err != nil {
			return nil, err
		}
		for range s.n {
			out[i] = append(out[i], completion{tokens: prompt[:len(prompt):len(prompt)], prompt: len(prompt)})
		}
	}
	shards := runtime.GOMAXPROCS(0)
	var group sync.WaitGroup
	for w := range shards {
		first, end := len(out)*w/shards, len(out)*(w+1)/shards
		if first < end {
			group.Go(func() { s.shard(out[first:end], first, seed) })
		}
	}
	group.Wait()
	return out, nil
}

// shard decodes some problems side by side; each prompt is read once and its cache copied.
func (s *sampler) shard(part [][]completion, first int, seed uint64) {
	var d lm.Decoder
	var prompts []*lm.Cache
	var inputs [][]int32
	for i := range part {
		prompts, inputs = append(prompts, lm.NewCache(s.params.Config)), append(inputs, part[i][0].tokens)
	}
	logits := d.Extend(s.params, prompts, inputs)
	v := s.params.Config.Vocabulary
	var live []*completion
	var caches []*lm.Cache
	var dice []*rand.Rand
	for i := range part {
		for k := range part[i] {
			rng := rand.New(rand.NewPCG(seed, uint64(first+i)<<32|uint64(k)))
			if !s.extend(&part[i][k], logits[i*v:(i+1)*v], rng) {
				continue
			}
			cache := lm.NewCache(s.params.Config)
			cache.CopyFrom(s.params.Config, prompts[i])
			live, caches, dice = append(live, &part[i][k]), append(caches, cache), append(dice, rng)
		}
	}
	for len(live) > 0 {
		inputs = inputs[:0]
		for _, c := range live {
			inputs = append(inputs, c.tokens[len(c.tokens)-1:])
		}
		logits = d.Extend(s.params, caches, inputs)
		kept := 0
		for i, c := range live {
			if s.extend(c, logits[i*v:(i+1)*v], dice[i]) {
				live[kept], caches[kept], dice[kept] = c, caches[i], dice[i]
				kept++
			}
		}
		live, caches, dice = live[:kept], caches[:kept], dice[:kept]
	}
}

// extend draws one token and reports whether the completion goes on.
func (s *sampler) extend(c *completion, logits []float32, rng *rand.Rand) bool {
	id, logp := s.sampling.Pick(logits, rng)
	c.tokens, c.logProbs = append(c.tokens, id), append(c.logProbs, logp)
	c.ended = id == lm.End
	return !c.ended && len(c.logProbs) < arithmetic.MaxTokens
}

func (s *sampler) score(p arithmetic.Problem, c *completion) float64 {
	return p.Score(s.tokenizer.Decode(c.tokens[c.prompt:]), c.ended)
}

// Accuracy is the part of problems answered right, greedily and by sampling at temperature 1 (each
// problem four times).
type Accuracy struct {
	Greedy, Sampled float64
}

// Evaluate measures a checkpoint on problems.
func Evaluate(c *lm.Checkpoint, problems []arithmetic.Problem, seed uint64) (Accuracy, error) {
	tokenizer, err := c.Tokenizer()
	if err != nil {
		return Accuracy{}, err
	}
	var out Accuracy
	for _, run := range []struct {
		temperature float64
		n           int
		into        *float64
	}{{0, 1, &out.Greedy}, {1, 4, &out.Sampled}} {
		s := sampler{c.Params, tokenizer, lm.Sampling{Temperature: run.temperature, TopP: 1}, run.n}
		all, err := s.sample(problems, seed)
		if err != nil {
			return out, err
		}
		var right float64
		for i := range all {
			for k := range all[i] {
				right += s.score(problems[i], &all[i][k])
			}
		}
		*run.into = right / float64(len(problems)*run.n)
	}
	return out, nil
}
