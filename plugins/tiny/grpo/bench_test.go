package grpo

import (
	"math/rand/v2"
	"testing"

	"github.com/recipe-rl/recipe/plugins/tiny/lm"
)

// BenchmarkStep is one step of the quickstart: 16 problems with 16 completions each, many of them equal.
func BenchmarkStep(b *testing.B) {
	p, err := lm.NewParams(lm.Config{Vocabulary: 99, Width: 64, Layers: 2, Heads: 4, Hidden: 256, Context: 64}, 1)
	if err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	var groups []Group
	tokens := 0
	for range 16 {
		prompt := []int32{int32(20 + rng.IntN(10)), int32(20 + rng.IntN(10)), 14, int32(20 + rng.IntN(10)),
			int32(20 + rng.IntN(10)), 32}
		var g Group
		for range 16 {
			s := Sequence{
				Tokens:  append(append([]int32(nil), prompt...), int32(20+rng.IntN(2)), int32(20+rng.IntN(4)), lm.End),
				Trained: []bool{6: true, 7: true, 8: true}, LogProbs: make([]float64, 9), Score: float64(rng.IntN(2)),
			}
			tokens += len(s.Tokens)
			g.Sequences = append(g.Sequences, s)
		}
		groups = append(groups, g)
	}
	t, err := New(DefaultConfig(), &lm.Checkpoint{Params: p}, nil)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := t.Train(groups); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*tokens)/b.Elapsed().Seconds(), "tokens/s")
}
