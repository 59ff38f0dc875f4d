package grpo

import (
	"errors"
	"math"

	"github.com/recipe-rl/recipe/plugins/tiny/lm"
)

// batch is a set of groups made ready for the model.
type batch struct {
	// sequences that push the policy come first; the rest, whose loss is constant, are only looked at
	// for the metrics and need no backward pass.
	sequences []sample
	active    int
	tokens    int        // trained, in the whole batch: the denominator of the loss
	groups    [][]*token // the trained tokens of each group, in order
	metrics   Metrics
}

// sample is a sequence without the tokens after the last trained one.
type sample struct {
	input []int32
	// targets[i] is what position i predicts, nil where nothing is trained: the one place where
	// labels, masks, log-probabilities and advantages are shifted against the tokens.
	targets []*token
	sums    sums
	age     Age
	told    bool // old is the sampler's value, rather than computed here
}

// sums are added up over trained tokens, a sequence at a time so that the order is fixed.
type sums struct {
	policy, kl, drift, entropy float64
	clipped                    int
	fresh, stale               Mismatch
}

func (t *Trainer) prepare(groups []Group) (*batch, error) {
	if len(groups) == 0 {
		return nil, errors.New("want at least one group, got none")
	}
	for i := range groups {
		if err := groups[i].Validate(t.policy.Config, t.cfg.Advantages.Layout); err != nil {
			return nil, err
		}
	}
	advantages, stats, err := t.cfg.Advantages.assign(groups)
	if err != nil {
		return nil, err
	}
	b := &batch{metrics: describe(groups, advantages, stats)}
	var idle []sample
	var unknown []*sample
	b.groups = make([][]*token, len(groups))
	for g := range groups {
		for i := range groups[g].Sequences {
			s, pushes := newSample(&groups[g].Sequences[i], advantages[g][i])
			s.age, s.told = groups[g].Age, groups[g].Sequences[i].LogProbs != nil
			for _, k := range s.targets {
				if k != nil {
					b.groups[g] = append(b.groups[g], k)
				}
			}
			switch {
			case len(s.input) == 0:
			case pushes || t.cfg.KL > 0:
				b.sequences = append(b.sequences, s)
			default:
				idle = append(idle, s)
			}
		}
	}
	b.active = len(b.sequences)
	b.sequences = append(b.sequences, idle...)
	b.tokens = b.metrics.Tokens
	if b.tokens == 0 {
		return nil, errors.New("want at least one trained token in the batch, got none: every mask is empty")
	}
	for i := range b.sequences {
		if s := &b.sequences[i]; s.oldMissing() {
			unknown = append(unknown, s)
		}
	}
	t.score(t.policy, unknown, func(k *token, logp float64) { k.old = logp })
	if t.cfg.KL > 0 {
		all := make([]*sample, len(b.sequences))
		for i := range all {
			all[i] = &b.sequences[i]
		}
		t.score(t.reference, all, func(k *token, logp float64) { k.reference = logp })
	}
	return b, nil
}

// newSample shifts a sequence; pushes reports whether any advantage is not 0.
func newSample(s *Sequence, advantages []float64) (out sample, pushes bool) {
	last := 0
	for t := range s.Tokens {
		if s.trains(t) {
			last = t
		}
	}
	out.input, out.targets = s.Tokens[:last], make([]*token, last)
	for t := 1; t <= last; t++ {
		if !s.trains(t) {
			continue
		}
		k := &token{id: s.Tokens[t], advantage: advantages[t], old: unknownLogProb}
		if s.LogProbs != nil {
			k.old = min(s.LogProbs[t], 0)
		}
		pushes = pushes || k.advantage != 0
		out.targets[t-1] = k
	}
	return out, pushes
}

// unknownLogProb cannot be a log-probability.
const unknownLogProb = 1

func (s *sample) oldMissing() bool {
	for _, k := range s.targets {
		if k != nil {
			return k.old == unknownLogProb
		}
	}
	return false
}

// score shows the log-probability of every trained token under a model.
func (t *Trainer) score(model *lm.Params, samples []*sample, visit func(k *token, logp float64)) {
	for len(samples) > 0 {
		n := min(t.cfg.MicroBatch, len(samples))
		part := samples[:n]
		inputs := make([][]int32, n)
		for i, s := range part {
			inputs[i] = s.input
		}
		t.gradient.Visit(model, inputs, func(seq, pos int, logits []float32) {
			if k := part[seq].targets[pos]; k != nil {
				visit(k, float64(logits[k.id])-lm.LogSumExp(logits))
			}
		})
		samples = samples[n:]
	}
}

// pass accumulates the gradient of the batch's loss and refills the sums.
func (t *Trainer) pass(b *batch) {
	weight := 1 / float64(b.tokens)
	for i := range b.sequences {
		b.sequences[i].sums = sums{}
	}
	for first := 0; first < len(b.sequences); {
		end := min(first+t.cfg.MicroBatch, len(b.sequences))
		if first < b.active {
			end = min(end, b.active)
		}
		part := b.sequences[first:end]
		inputs := make([][]int32, len(part))
		for i := range part {
			inputs[i] = part[i].input
		}
		if first < b.active {
			t.gradient.Accumulate(t.policy, inputs, func(seq, pos int, logits, dlogits []float32) {
				part[seq].look(&t.cfg, pos, weight, logits, dlogits)
			})
		} else {
			t.gradient.Visit(t.policy, inputs, func(seq, pos int, logits []float32) {
				part[seq].look(&t.cfg, pos, weight, logits, nil)
			})
		}
		first = end
	}
}

// look adds one position to the sums and, with dlogits, to the gradient.
func (s *sample) look(c *Config, pos int, weight float64, logits, dlogits []float32) {
	k := s.targets[pos]
	if k == nil {
		return
	}
	out, entropy := c.gradient(*k, weight, logits, dlogits)
	logp := float64(logits[k.id]) - lm.LogSumExp(logits)
	if !k.scored {
		k.before, k.scored = logp, true
	}
	drift, _ := k3(k.old, logp)
	if s.told {
		s.sums.measure(s.age, logp-k.old, drift, c)
	}
	s.sums.policy += out.policy
	s.sums.kl += out.kl
	s.sums.drift += drift
	s.sums.entropy += entropy
	if out.clipped {
		s.sums.clipped++
	}
}

func (b *batch) sums() (total sums) {
	for i := range b.sequences {
		s := &b.sequences[i].sums
		total.policy += s.policy
		total.kl += s.kl
		total.drift += s.drift
		total.entropy += s.entropy
		total.clipped += s.clipped
		total.fresh.add(s.fresh)
		total.stale.add(s.stale)
	}
	return total
}

// measure notes how far the sampler's log-probability is from the trainer's, by who sampled.
func (s *sums) measure(age Age, gap, divergence float64, c *Config) {
	ratio := math.Exp(min(max(gap, -maxLogRatio), maxLogRatio))
	one := Mismatch{Tokens: 1, MeanAbs: math.Abs(gap), MaxAbs: math.Abs(gap), KL: divergence}
	if ratio < 1-c.ClipLow || ratio > 1+c.ClipHigh {
		one.Clipped = 1
	}
	switch age {
	case Fresh:
		s.fresh.add(one)
	case Stale:
		s.stale.add(one)
	}
}

// computed is what the batch's tokens came to.
func (b *batch) computed() []Computed {
	out := make([]Computed, len(b.groups))
	for g, tokens := range b.groups {
		out[g] = Computed{make([]float64, len(tokens)), make([]float64, len(tokens))}
		for i, k := range tokens {
			out[g].LogProbs[i], out[g].Advantages[i] = k.before, k.advantage
		}
	}
	return out
}
