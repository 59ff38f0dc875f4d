package grpo

import (
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/plugins/tiny/lm"
)

const testAlphabet = "0123456789+=abcde"

func testModel(t testing.TB) *lm.Params {
	t.Helper()
	p, err := lm.NewParams(lm.Config{Vocabulary: 20, Width: 16, Layers: 2, Heads: 2, Hidden: 32, Context: 16}, 5)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func testTrainer(t testing.TB, change func(*Config)) *Trainer {
	t.Helper()
	c := DefaultConfig()
	c.WarmupSteps = 0
	if change != nil {
		change(&c)
	}
	p := testModel(t)
	tr, err := New(c, &lm.Checkpoint{Params: p, Alphabet: testAlphabet}, p.Clone())
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// testGroups are off-policy on purpose, with different lengths, holes, a flat group and overrides.
func testGroups(seed uint64) []Group {
	rng := rand.New(rand.NewPCG(seed, 1))
	var groups []Group
	for g := range 5 {
		var group Group
		for i := range 4 {
			n := 3 + rng.IntN(9)
			s := Sequence{Score: float64(rng.IntN(3))}
			if g == 2 {
				s.Score = 1
			}
			for t := range n {
				s.Tokens = append(s.Tokens, int32(rng.IntN(20)))
				s.Trained = append(s.Trained, t > 1 && rng.IntN(5) > 0)
				s.LogProbs = append(s.LogProbs, -2-2*rng.Float64())
			}
			if g == 3 && i < 2 {
				s.Advantages = []float64{rng.NormFloat64()}
			}
			group.Sequences = append(group.Sequences, s)
		}
		groups = append(groups, group)
	}
	return groups
}

//docs:survival.md the loss depends on the split into micro batches
func TestStepDoesNotDependOnTheSplit(t *testing.T) {
	t.Parallel()
	run := func(micro, shards int) ([]float32, Metrics) {
		tr := testTrainer(t, func(c *Config) { c.MicroBatch, c.Shards, c.KL, c.Epochs = micro, shards, 0.1, 2 })
		m, err := tr.Train(testGroups(1))
		if err != nil {
			t.Fatal(err)
		}
		return tr.gradient.Sum(), m
	}
	want, metrics := run(128, 1)
	var norm float64
	for _, v := range want {
		norm += float64(v) * float64(v)
	}
	for _, split := range [][2]int{{1, 1}, {3, 1}, {7, 2}, {128, 4}, {128, 1}} {
		got, m := run(split[0], split[1])
		var far float64
		for i := range want {
			d := float64(got[i] - want[i])
			far += d * d
		}
		if math.Sqrt(far/norm) > 1e-3 {
			t.Errorf("micro-batch %d, %d shards: gradient differs by %.2g of its norm", split[0], split[1],
				math.Sqrt(far/norm))
		}
		if math.Abs(m.Loss-metrics.Loss) > 1e-5 || math.Abs(m.GradNorm/metrics.GradNorm-1) > 1e-4 ||
			m.Tokens != metrics.Tokens {
			t.Errorf("micro-batch %d, %d shards: metrics %+v, want %+v", split[0], split[1], m, metrics)
		}
	}
	again, _ := run(128, 1)
	if !slices.Equal(again, want) {
		t.Error("the same split gave different bits")
	}
}

// The denominator counts every trained token, also those of groups without a gradient.
func TestDenominatorCountsTheWholeBatch(t *testing.T) {
	t.Parallel()
	groups := testGroups(1)
	flat := groups[2]
	a, err := testTrainer(t, nil).Train(append(groups[:2:2], flat))
	if err != nil {
		t.Fatal(err)
	}
	b, err := testTrainer(t, nil).Train(groups[:2])
	if err != nil {
		t.Fatal(err)
	}
	if a.Tokens <= b.Tokens || a.FlatGroups != b.FlatGroups+1 {
		t.Fatalf("tokens %d and %d, flat groups %d and %d", a.Tokens, b.Tokens, a.FlatGroups, b.FlatGroups)
	}
	if ratio := a.GradNorm / b.GradNorm * float64(a.Tokens) / float64(b.Tokens); math.Abs(ratio-1) > 1e-3 {
		t.Errorf("gradient is not divided by all trained tokens: off by %v", ratio)
	}
	if a.Entropy <= 0 {
		t.Error("entropy is not measured")
	}
}

func TestMissingLogProbsAreComputedFromThePolicy(t *testing.T) {
	t.Parallel()
	groups := testGroups(1)
	for g := range groups {
		for i := range groups[g].Sequences {
			groups[g].Sequences[i].LogProbs = nil
		}
	}
	m, err := testTrainer(t, nil).Train(groups)
	if err != nil {
		t.Fatal(err)
	}
	if m.PolicyKL > 1e-9 || m.ClipFraction != 0 {
		t.Errorf("on-policy data looks off-policy: %+v", m)
	}
	if off, err := testTrainer(t, nil).Train(testGroups(1)); err != nil || off.PolicyKL < 0.01 ||
		off.ClipFraction == 0 {
		t.Errorf("off-policy data looks on-policy: %+v, %v", off, err)
	}
}

func TestTrainingRaisesWhatIsRewarded(t *testing.T) {
	t.Parallel()
	tr := testTrainer(t, func(c *Config) { c.LearningRate = 3e-3 })
	prompt, good := []int32{4, 9}, int32(12)
	probability := func() float64 {
		var a lm.Activations
		return math.Exp(tr.Policy().LogProbs(&a, append(slices.Clone(prompt), good))[2])
	}
	before := probability()
	for range 25 {
		var g Group
		for id := range int32(20) { // every token once: no randomness
			s := Sequence{Tokens: append(slices.Clone(prompt), id), Trained: []bool{false, false, true}}
			if id == good {
				s.Score = 1
			}
			g.Sequences = append(g.Sequences, s)
		}
		if _, err := tr.Train([]Group{g}); err != nil {
			t.Fatal(err)
		}
	}
	if after := probability(); after < 5*before {
		t.Errorf("probability of the rewarded token went from %.3f to %.3f", before, after)
	}
}

func TestKLHoldsThePolicyNearTheReference(t *testing.T) {
	t.Parallel()
	run := func(kl float64) Metrics {
		tr := testTrainer(t, func(c *Config) { c.LearningRate, c.KL = 1e-2, kl })
		var m Metrics
		for step := range uint64(30) {
			groups := testGroups(step % 3)
			var err error
			if m, err = tr.Train(groups); err != nil {
				t.Fatal(err)
			}
		}
		return m
	}
	loose, tight := run(1e-9), run(5)
	if tight.KL >= loose.KL/2 {
		t.Errorf("KL with a coefficient of 5 is %v, without %v", tight.KL, loose.KL)
	}
}

func TestResumeContinuesExactly(t *testing.T) {
	t.Parallel()
	warm := func(c *Config) { c.WarmupSteps = 5 }
	straight := testTrainer(t, warm)
	for step := range uint64(4) {
		if _, err := straight.Train(testGroups(step)); err != nil {
			t.Fatal(err)
		}
	}
	first := testTrainer(t, warm)
	for step := range uint64(2) {
		if _, err := first.Train(testGroups(step)); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "c")
	if err := first.State(testAlphabet, nil).Save(path); err != nil {
		t.Fatal(err)
	}
	saved, err := lm.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	second, err := New(first.cfg, saved, nil)
	if err != nil {
		t.Fatal(err)
	}
	var m Metrics
	for step := range uint64(2) {
		if m, err = second.Train(testGroups(step + 2)); err != nil {
			t.Fatal(err)
		}
	}
	if second.Steps() != 4 || m.Step != 4 || math.Abs(m.LearningRate-3e-4*4/5) > 1e-12 {
		t.Errorf("resumed at step %d (metrics %d) with rate %v", second.Steps(), m.Step, m.LearningRate)
	}
	if !slices.Equal(second.Policy().Flat(), straight.Policy().Flat()) {
		t.Error("a resumed run differs from one that was not interrupted")
	}
}

func TestRefusedBatchesChangeNothing(t *testing.T) {
	t.Parallel()
	tr := testTrainer(t, nil)
	before := slices.Clone(tr.Policy().Flat())
	masked := testGroups(1)[:1]
	for i := range masked[0].Sequences {
		clear(masked[0].Sequences[i].Trained)
	}
	bad := testGroups(1)
	bad[1].Sequences[0].Score = math.Inf(1)
	for want, groups := range map[string][]Group{"at least one group": nil, "every mask is empty": masked,
		"score": bad} {
		if _, err := tr.Train(groups); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error about %q, got %v", want, err)
		}
	}
	if tr.Steps() != 0 || !slices.Equal(before, tr.Policy().Flat()) {
		t.Error("a refused batch changed the policy")
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	p := testModel(t)
	c := Config{LearningRate: -1, ClipLow: 2, DualClip: 0.5, Adam: lm.DefaultAdam()}
	_, err := New(c, &lm.Checkpoint{Params: p}, nil)
	for _, field := range []string{"learning rate", "lower ratio clip", "dual clip", "epochs", "micro-batch",
		"layout"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("no complaint about %s in: %v", field, err)
		}
	}
	c = DefaultConfig()
	c.KL = 0.1
	if _, err := New(c, &lm.Checkpoint{Params: p}, nil); err == nil || !strings.Contains(err.Error(), "reference") {
		t.Errorf("KL without a reference: %v", err)
	}
}
