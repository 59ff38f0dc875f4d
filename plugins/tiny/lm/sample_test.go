package lm

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestPickFollowsTheDistribution(t *testing.T) {
	t.Parallel()
	logits := []float32{0, float32(math.Log(2)), float32(math.Log(5)), float32(math.Inf(-1))}
	for name, test := range map[string]struct {
		sampling Sampling
		want     []float64
	}{
		"plain":       {Sampling{Temperature: 1, TopP: 1}, []float64{1. / 8, 2. / 8, 5. / 8, 0}},
		"greedy":      {Sampling{Temperature: 0, TopP: 1}, []float64{0, 0, 1, 0}},
		"sharper":     {Sampling{Temperature: 0.5, TopP: 1}, []float64{1. / 30, 4. / 30, 25. / 30, 0}},
		"top p":       {Sampling{Temperature: 1, TopP: 0.7}, []float64{0, 2. / 7, 5. / 7, 0}},
		"top k":       {Sampling{Temperature: 1, TopP: 1, TopK: 2}, []float64{0, 2. / 7, 5. / 7, 0}},
		"large top k": {Sampling{Temperature: 1, TopP: 1, TopK: 9}, []float64{1. / 8, 2. / 8, 5. / 8, 0}},
		"min p":       {Sampling{Temperature: 1, TopP: 1, MinP: 0.3}, []float64{0, 2. / 7, 5. / 7, 0}},
		"all of them": {Sampling{Temperature: 1, TopP: 0.7, TopK: 2, MinP: 0.1}, []float64{0, 0, 1, 0}},
		"small top p": {Sampling{Temperature: 1, TopP: 0.01}, []float64{0, 0, 1, 0}},
	} {
		rng, counts := rand.New(rand.NewPCG(1, 2)), make([]float64, 4)
		const n = 20000
		for range n {
			id, logp := test.sampling.Pick(logits, rng)
			counts[id]++
			if want := float64(logits[id]) - math.Log(8); math.Abs(logp-want) > 1e-6 {
				t.Fatalf("%s: log-probability of %d is %v, want the model's %v", name, id, logp, want)
			}
		}
		for i, want := range test.want {
			if math.Abs(counts[i]/n-want) > 0.02 || (want == 0 && counts[i] > 0) {
				t.Errorf("%s: token %d was drawn %.3f of the time, want %.3f", name, i, counts[i]/n, want)
			}
		}
	}
}

func TestSamplingValidate(t *testing.T) {
	t.Parallel()
	for _, bad := range []Sampling{{-1, 1, 0, 0}, {math.NaN(), 1, 0, 0}, {1, 0, 0, 0}, {1, 1.5, 0, 0},
		{math.Inf(1), 1, 0, 0}, {1, 1, -1, 0}, {1, 1, 0, -0.1}, {1, 1, 0, 1.1}, {1, 1, 0, math.NaN()}} {
		if bad.Validate() == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
	if err := (Sampling{Temperature: 0, TopP: 1}).Validate(); err != nil {
		t.Error(err)
	}
}
