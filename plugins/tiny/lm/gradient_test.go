package lm

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func testConfig() Config {
	return Config{Vocabulary: 20, Width: 32, Layers: 2, Heads: 4, Hidden: 64, Context: 12}
}

func testModel(t testing.TB) *Params {
	t.Helper()
	return modelOf(t, testConfig())
}

func modelOf(t testing.TB, c Config) *Params {
	t.Helper()
	p, err := NewParams(c, 3)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(9, 9))
	for i := range p.head { // a fresh head is nearly uniform, which would hide errors
		p.head[i] = float32(rng.NormFloat64() * 0.3)
	}
	return p
}

// testBatch has sequences of different lengths, among them a single token, a full context, one that
// begins like another and one that is another's beginning.
func testBatch() [][]int32 {
	rng := rand.New(rand.NewPCG(5, 5))
	var batch [][]int32
	for _, n := range []int{7, 1, 12, 3, 5} {
		s := make([]int32, n)
		for i := range s {
			s[i] = int32(rng.IntN(20))
		}
		batch = append(batch, s)
	}
	branch := append(slices.Clone(batch[2][:6]), 1, 2)
	return append(batch, branch, slices.Clone(batch[0][:4]), slices.Clone(batch[0]))
}

// crossEntropy has the arbitrary target (7·seq+3·pos) mod V after each position.
func crossEntropy(sums []float64) LossFunc {
	return func(seq, pos int, logits, d []float32) {
		want, lse := (7*seq+3*pos)%len(logits), LogSumExp(logits)
		sums[seq] += lse - float64(logits[want])
		for i, v := range logits {
			d[i] += float32(math.Exp(float64(v) - lse))
		}
		d[want]--
	}
}

func total(p *Params, batch [][]int32) float64 {
	sums := make([]float64, len(batch))
	NewGradient(p.Config, 1).Accumulate(p, batch, crossEntropy(sums))
	var s float64
	for _, v := range sums {
		s += v
	}
	return s
}

// Every kind of weight is checked separately, so that a wrong gradient cannot hide in a sum.
func TestGradientMatchesFiniteDifferences(t *testing.T) {
	t.Parallel()
	wide := testConfig()
	wide.Bytes, wide.Positions = allBytes, 5
	for name, c := range map[string]Config{"characters": testConfig(), "bytes": wide} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkGradient(t, modelOf(t, c))
		})
	}
}

func checkGradient(t *testing.T, p *Params) {
	t.Helper()
	batch := testBatch()
	for _, at := range []int{0, 2} { // some of what is read are bytes
		for i := 1; p.Config.Bytes > 0 && i < len(batch[at]); i += 2 {
			batch[at][i] += int32(p.Config.Vocabulary)
		}
	}
	g := NewGradient(p.Config, 1)
	g.Accumulate(p, batch, crossEntropy(make([]float64, len(batch))))
	grad := view(p.Config, slices.Clone(g.Sum()))
	rng := rand.New(rand.NewPCG(1, 1))
	check := func(name string, weights, gradient []float32) {
		t.Helper()
		direction, before := make([]float32, len(weights)), slices.Clone(weights)
		var analytic, norm float64
		for i := range direction {
			direction[i] = float32(rng.NormFloat64())
			analytic += float64(direction[i]) * float64(gradient[i])
			norm += float64(gradient[i]) * float64(gradient[i])
		}
		const h = 2e-4
		at := func(step float32) float64 {
			for i := range weights {
				weights[i] = before[i] + step*direction[i]
			}
			return total(p, batch)
		}
		numeric := (at(h) - at(-h)) / (2 * h)
		copy(weights, before)
		if norm == 0 {
			t.Errorf("%s: gradient is all zero", name)
		}
		if diff := math.Abs(numeric - analytic); diff > 0.01*math.Sqrt(norm)+0.02*math.Abs(analytic) {
			t.Errorf("%s: gradient along a random direction is %.5f, finite differences give %.5f", name, analytic,
				numeric)
		}
	}
	check("embed", p.embed, grad.embed)
	check("position", p.position, grad.position)
	check("norm", p.norm, grad.norm)
	check("head", p.head, grad.head)
	if p.Config.Bytes > 0 {
		check("bytes", p.bytes, grad.bytes)
	}
	for i := range p.blocks {
		w, d := &p.blocks[i], &grad.blocks[i]
		check("norm1", w.norm1, d.norm1)
		check("qkv", w.qkv, d.qkv)
		check("out", w.out, d.out)
		check("norm2", w.norm2, d.norm2)
		check("up", w.up, d.up)
		check("down", w.down, d.down)
	}
}

func TestGradientIsReproducibleAndIndependentOfTheSplit(t *testing.T) {
	t.Parallel()
	p, batch := testModel(t), testBatch()
	run := func(shards int, parts ...[][]int32) []float32 {
		g, first := NewGradient(p.Config, shards), 0
		for _, part := range parts {
			loss := crossEntropy(make([]float64, len(batch)))
			g.Accumulate(p, part, func(seq, pos int, logits, d []float32) { loss(first+seq, pos, logits, d) })
			first += len(part)
		}
		return slices.Clone(g.Sum())
	}
	whole := run(3, batch)
	for range 5 {
		if again := run(3, batch); !slices.Equal(whole, again) {
			t.Fatal("the same batch and shard count gave different bits")
		}
	}
	for name, other := range map[string][]float32{
		"nothing shared": run(1, batch[:1], batch[1:2], batch[2:3], batch[3:4], batch[4:5], batch[5:6], batch[6:7],
			batch[7:]),
		"one shard": run(1, batch), "many shards": run(8, batch), "two parts": run(3, batch[:2], batch[2:]),
	} {
		for i := range whole {
			if math.Abs(float64(whole[i]-other[i])) > 1e-4*(1+math.Abs(float64(whole[i]))) {
				t.Fatalf("%s: weight %d has gradient %g, want %g", name, i, other[i], whole[i])
			}
		}
	}
}

func TestGradientZeroForgets(t *testing.T) {
	t.Parallel()
	p, batch := testModel(t), testBatch()
	g := NewGradient(p.Config, 2)
	g.Accumulate(p, batch, crossEntropy(make([]float64, len(batch))))
	first := slices.Clone(g.Sum())
	g.Zero()
	g.Accumulate(p, batch, crossEntropy(make([]float64, len(batch))))
	if !slices.Equal(first, g.Sum()) {
		t.Error("after Zero the gradient is not that of the batch alone")
	}
}

func TestLogProbabilitiesNormalize(t *testing.T) {
	t.Parallel()
	p, batch := testModel(t), testBatch()
	rows := 0
	NewGradient(p.Config, 1).Visit(p, batch, func(_, _ int, logits []float32) {
		rows++
		lse, sum := LogSumExp(logits), 0.0
		for _, v := range logits {
			sum += math.Exp(float64(v) - lse)
		}
		if math.Abs(sum-1) > 1e-9 {
			t.Errorf("probabilities of a row add up to %v", sum)
		}
	})
	if want := 7 + 1 + 12 + 3 + 5 + 8 + 4 + 7; rows != want {
		t.Errorf("visited %d tokens, want %d", rows, want)
	}
	if got := LogSumExp([]float32{1000, 1000}); math.Abs(got-1000-math.Ln2) > 1e-9 {
		t.Errorf("LogSumExp overflows or loses precision: %v", got)
	}
}

func TestAdamLearnsAndRefusesNaN(t *testing.T) {
	t.Parallel()
	p, batch := testModel(t), testBatch()
	g, o := NewGradient(p.Config, 2), NewAdam(DefaultAdam(), len(p.flat))
	before := total(p, batch)
	for range 60 {
		g.Zero()
		g.Accumulate(p, batch, crossEntropy(make([]float64, len(batch))))
		if _, err := o.Step(p.flat, g.Sum(), 3e-3, 1); err != nil {
			t.Fatal(err)
		}
	}
	if after := total(p, batch); after > before/4 {
		t.Errorf("loss went from %.3f to %.3f only", before, after)
	}
	kept, steps := slices.Clone(p.flat), o.Steps
	bad := make([]float32, len(p.flat))
	bad[4] = float32(math.NaN())
	if _, err := o.Step(p.flat, bad, 1e-3, 1); err == nil || !slices.Equal(kept, p.flat) || o.Steps != steps {
		t.Errorf("a NaN gradient must be refused and change nothing; got error %v", err)
	}
}

func TestAdamFirstStepIsTheRateWhateverTheClip(t *testing.T) {
	t.Parallel()
	w, o := []float32{1, 1}, NewAdam(AdamConfig{Beta1: 0.9, Beta2: 0.98, Epsilon: 1e-8, WeightDecay: 0.1}, 2)
	norm, err := o.Step(w, []float32{30, -40}, 0.01, 1)
	if err != nil || math.Abs(norm-50) > 1e-6 {
		t.Fatalf("norm %v, error %v; want 50", norm, err)
	}
	for i, want := range []float64{1*(1-0.001) - 0.01, 1*(1-0.001) + 0.01} {
		if math.Abs(float64(w[i])-want) > 1e-5 {
			t.Errorf("weight %d is %v, want %v", i, w[i], want)
		}
	}
	if math.Abs(float64(o.Mean[0])-0.1*0.6) > 1e-6 {
		t.Errorf("first moment %v was not built from the clipped gradient", o.Mean[0])
	}
}
