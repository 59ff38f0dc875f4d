package grpo

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/recipe-rl/recipe/plugins/tiny/lm"
)

// Values worked out by hand from the formulas: ratio clip 0.2, dual clip 3.
func TestLossValues(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	for name, test := range map[string]struct {
		ratio, advantage, want, slope float64
		clipped                       bool
	}{
		"on policy":                      {1, 2, -2, -2, false},
		"good token, inside":             {1.1, 2, -2.2, -2.2, false},
		"good token, far up: stop":       {1.5, 2, -2.4, 0, true},
		"good token, far down: push":     {0.5, 2, -1, -1, false},
		"bad token, inside":              {0.9, -1, 0.9, 0.9, false},
		"bad token, far down: stop":      {0.1, -1, 0.8, 0, true},
		"bad token, far up: push":        {2, -1, 2, 2, false},
		"bad token, beyond dual: stop":   {5, -1, 3, 0, true},
		"no advantage":                   {3, 0, 0, 0, false},
		"bad token, just below the dual": {2.9, -2, 5.8, 5.8, false},
	} {
		got := c.loss(math.Log(test.ratio)-1, token{old: -1, advantage: test.advantage})
		if math.Abs(got.policy-test.want) > 1e-9 || math.Abs(got.slope-test.slope) > 1e-9 ||
			got.clipped != test.clipped {
			t.Errorf("%s: got loss %v slope %v clipped %v, want %v %v %v", name, got.policy, got.slope, got.clipped,
				test.want, test.slope, test.clipped)
		}
	}
	c.DualClip = 0
	if got := c.loss(math.Log(5)-1, token{old: -1, advantage: -1}); math.Abs(got.policy-5) > 1e-9 {
		t.Errorf("without dual clip: loss %v, want 5", got.policy)
	}
}

func TestLossSlopeMatchesFiniteDifferences(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	c.KL = 0.3
	rng := rand.New(rand.NewPCG(1, 2))
	total := func(logp float64, k token) float64 {
		out := c.loss(logp, k)
		return out.policy + c.KL*out.kl
	}
	for range 2000 {
		k := token{old: -3 * rng.Float64(), reference: -3 * rng.Float64(), advantage: rng.NormFloat64()}
		logp := -3 * rng.Float64()
		const h = 1e-6
		if edge := math.Exp(logp - k.old); math.Abs(edge-0.8) < 1e-4 || math.Abs(edge-1.2) < 1e-4 ||
			math.Abs(edge-3) < 1e-4 {
			continue // the loss is not differentiable here
		}
		numeric := (total(logp+h, k) - total(logp-h, k)) / (2 * h)
		if got := c.loss(logp, k).slope; math.Abs(got-numeric) > 1e-7*(1+math.Abs(numeric)) {
			t.Fatalf("slope %v, finite differences %v for %+v at %v", got, numeric, k, logp)
		}
	}
}

func TestK3(t *testing.T) {
	t.Parallel()
	if v, s := k3(-1.5, -1.5); v != 0 || s != 0 {
		t.Errorf("equal policies: divergence %v slope %v, want 0 0", v, s)
	}
	if v, s := k3(-2, -1); math.Abs(v-(math.E-2)) > 1e-12 || math.Abs(s-(1-math.E)) > 1e-12 {
		t.Errorf("one nat below the reference: %v %v", v, s)
	}
	if v, s := k3(-30, -1); v != maxKL || s != 0 {
		t.Errorf("far below the reference: %v %v, want %v 0", v, s, maxKL)
	}
}

func TestLogitGradientMatchesFiniteDifferences(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	c.KL = 0.5
	rng := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		logits := make([]float32, 12)
		for i := range logits {
			logits[i] = float32(rng.NormFloat64())
		}
		id := rng.IntN(len(logits))
		logp := float64(logits[id]) - lm.LogSumExp(logits)
		k := token{id: int32(id), old: logp - 0.1, reference: logp + rng.NormFloat64()/2, advantage: rng.NormFloat64()}
		d := make([]float32, len(logits))
		const weight = 0.25
		_, entropy := c.gradient(k, weight, logits, d)
		if entropy <= 0 || entropy > math.Log(12) {
			t.Fatalf("entropy of 12 logits is %v", entropy)
		}
		const h = 1.0 / 1024 // exact in float32
		for i := range logits {
			at := func(step float32) float64 {
				moved := append([]float32(nil), logits...)
				moved[i] += step
				out := c.loss(float64(moved[id])-lm.LogSumExp(moved), k)
				return weight * (out.policy + c.KL*out.kl)
			}
			if numeric := (at(h) - at(-h)) / (2 * h); math.Abs(numeric-float64(d[i])) > 1e-4*(1+math.Abs(numeric)) {
				t.Fatalf("logit %d: gradient %v, finite differences %v", i, d[i], numeric)
			}
		}
	}
}
