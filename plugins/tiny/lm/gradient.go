package lm

import (
	"runtime"
	"sync"
)

// LossFunc is called for every token of a batch: logits predict the token after position pos of
// sequence seq (an index into the batch). It adds the gradient of the loss to dlogits, which other
// sequences that are equal up to pos add to as well. Calls for different sequences may come from
// different goroutines.
type LossFunc func(seq, pos int, logits, dlogits []float32)

// Gradient sums gradients over batches, split into shards that run side by side. Equal inputs and
// an equal number of shards give equal bits, however the shards are scheduled.
type Gradient struct {
	shards []shard
}

type shard struct {
	acts Activations
	grad *Params
}

// NewGradient makes a zero gradient for models of this shape; shards of 0 means one a processor.
func NewGradient(c Config, shards int) *Gradient {
	if shards <= 0 {
		shards = runtime.GOMAXPROCS(0)
	}
	g := &Gradient{shards: make([]shard, shards)}
	for i := range g.shards {
		g.shards[i].grad = view(c, make([]float32, c.Parameters()))
	}
	return g
}

// Zero forgets what was accumulated.
func (g *Gradient) Zero() {
	for i := range g.shards {
		clear(g.shards[i].grad.flat)
	}
}

// Accumulate runs forward and backward over batch and adds the gradient of loss.
func (g *Gradient) Accumulate(p *Params, batch [][]int32, loss LossFunc) {
	g.each(batch, func(s *shard, first int, part [][]int32) {
		p.Forward(&s.acts, part)
		d := resize(&s.acts.dlogits, len(s.acts.logits))
		clear(d)
		for i := range part {
			for pos := range part[i] {
				loss(first+i, pos, s.acts.Logits(i, pos), s.acts.row(d, i, pos))
			}
		}
		p.backward(&s.acts, d, s.grad)
	})
}

// Visit runs the model forward over batch and shows the logits of every token to visit, without a
// gradient. The concurrency is that of LossFunc.
func (g *Gradient) Visit(p *Params, batch [][]int32, visit func(seq, pos int, logits []float32)) {
	g.each(batch, func(s *shard, first int, part [][]int32) {
		p.Forward(&s.acts, part)
		for i := range part {
			for pos := range part[i] {
				visit(first+i, pos, s.acts.Logits(i, pos))
			}
		}
	})
}

// Sum adds the shards, in their order, and returns the gradient in the order of Params.Flat. It is
// valid until the next Accumulate or Zero.
func (g *Gradient) Sum() []float32 {
	total := g.shards[0].grad.flat
	for i := range g.shards[1:] {
		part := g.shards[i+1].grad.flat
		axpy(1, part, total)
		clear(part)
	}
	return total
}

// mostPairs bounds the pairs of tokens that one pass attends to, and so its memory: some 20 bytes for each and layer.
const mostPairs = 16 << 20

// together is how many of the sequences go through the model in one pass.
func together(batch [][]int32) int {
	pairs := 0
	for i, s := range batch {
		if pairs += len(s) * len(s); pairs > mostPairs && i > 0 {
			return i
		}
	}
	return len(batch)
}

// each cuts batch into consecutive parts with about the same number of tokens, one a shard.
func (g *Gradient) each(batch [][]int32, work func(s *shard, first int, part [][]int32)) {
	tokens := 0
	for _, s := range batch {
		tokens += len(s)
	}
	var group sync.WaitGroup
	defer group.Wait()
	first, seen := 0, 0
	for i := range g.shards {
		end := first
		for end < len(batch) && seen < tokens*(i+1)/len(g.shards) {
			seen += len(batch[end])
			end++
		}
		if end > first {
			s, begin, part := &g.shards[i], first, batch[first:end]
			group.Go(func() {
				for len(part) > 0 {
					n := together(part)
					work(s, begin, part[:n])
					begin, part = begin+n, part[n:]
				}
			})
		}
		first = end
	}
}

// NeverWritten is the log-probability of a token that the model reads and never writes.
const NeverWritten = -100

// LogProb is the log-probability of a token, given the logits that predict it.
func LogProb(logits []float32, token int32) float64 {
	if int(token) >= len(logits) {
		return NeverWritten
	}
	return float64(logits[token]) - LogSumExp(logits)
}

// LogProbs returns, for each position of tokens, the log-probability of that token given those
// before it; position 0 has nothing before it and is 0.
func (p *Params) LogProbs(a *Activations, tokens []int32) []float64 {
	out := make([]float64, len(tokens))
	p.Forward(a, [][]int32{tokens})
	for i, t := range tokens[1:] {
		row := a.Logits(0, i)
		out[i+1] = LogProb(row, t)
	}
	return out
}
