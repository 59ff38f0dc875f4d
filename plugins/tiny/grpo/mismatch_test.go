package grpo

import (
	"math"
	"testing"
)

// sampledAs gives the groups sampler log-probabilities that are the trainer's own minus shift.
func sampledAs(t *testing.T, tr *Trainer, groups []Group, shift float64) {
	t.Helper()
	for g := range groups {
		for i := range groups[g].Sequences {
			s := &groups[g].Sequences[i]
			s.LogProbs = nil
			one, _ := newSample(s, make([]float64, len(s.Tokens)))
			tr.score(tr.policy, []*sample{&one}, func(k *token, logp float64) { k.old = logp })
			s.LogProbs = make([]float64, len(s.Tokens))
			for pos, k := range one.targets {
				if k != nil {
					s.LogProbs[pos+1] = k.old - shift
				}
			}
		}
	}
}

//docs:troubleshooting.md Sampler and trainer drift apart on what the fixed text does not cover
func TestFreshAndStaleSamplesAreMeasuredApart(t *testing.T) {
	t.Parallel()
	tr := testTrainer(t, func(c *Config) { c.Epochs = 2 }) // the second epoch must not count
	groups := testGroups(3)
	fresh, stale := groups[:2:2], groups[2:4:4]
	sampledAs(t, tr, fresh, 0.01)
	sampledAs(t, tr, stale, 0.5)
	silent := groups[4]
	silent.Age = Fresh
	for i := range silent.Sequences {
		silent.Sequences[i].LogProbs = nil
	}
	for i := range fresh {
		fresh[i].Age, stale[i].Age = Fresh, Stale
	}
	m, err := tr.Train(append(append(fresh, stale...), silent))
	if err != nil {
		t.Fatal(err)
	}
	near := func(name string, got, want, tolerance float64) {
		if math.Abs(got-want) > tolerance {
			t.Errorf("%s is %g, want %g", name, got, want)
		}
	}
	near("fresh mean", m.Fresh.MeanAbs, 0.01, 1e-4)
	near("fresh max", m.Fresh.MaxAbs, 0.01, 1e-4)
	near("fresh kl", m.Fresh.KL, math.Exp(0.01)-1.01, 1e-5)
	near("fresh clipped", m.Fresh.Clipped, 0, 0)
	near("stale mean", m.Stale.MeanAbs, 0.5, 1e-3)
	near("stale kl", m.Stale.KL, math.Exp(0.5)-1.5, 1e-3)
	near("stale clipped", m.Stale.Clipped, 1, 0) // e^½ is above 1.2
	if n := m.Fresh.Tokens + m.Stale.Tokens; m.Fresh.Tokens == 0 || m.Stale.Tokens == 0 || n >= m.Tokens {
		t.Errorf("%d fresh and %d stale of %d tokens; what the sampler did not tell of must be in neither",
			m.Fresh.Tokens, m.Stale.Tokens, m.Tokens)
	}
}

// Whitening must not give a group of one an advantage.
func TestAGroupOfOneShiftsNobody(t *testing.T) {
	t.Parallel()
	a := DefaultAdvantages()
	a.Whiten, a.WhitenAll = true, true
	several := Group{Name: "several", Sequences: []Sequence{four(3), four(1), four(0)}}
	alone := Group{Name: "alone", Sequences: []Sequence{four(5)}}
	want, _, err := a.assign([]Group{several})
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := a.assign([]Group{several, alone})
	if err != nil {
		t.Fatal(err)
	}
	for i := range want[0] {
		for k := range want[0][i] {
			if got[0][i][k] != want[0][i][k] {
				t.Errorf("sequence %d, token %d: advantage %g beside a group of one, %g without", i, k, got[0][i][k],
					want[0][i][k])
			}
		}
	}
	for k, v := range got[1][0] {
		if v != 0 {
			t.Errorf("token %d of the group of one has advantage %g", k, v)
		}
	}
}
