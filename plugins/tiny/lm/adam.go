package lm

import (
	"fmt"
	"math"
)

// AdamConfig are the constants of the optimizer.
type AdamConfig struct {
	Beta1, Beta2, Epsilon float64
	// WeightDecay is decoupled (AdamW): each step first shrinks the weights by rate × decay.
	WeightDecay float64
}

// DefaultAdam is Adam without weight decay. Beta2 is 0.98 rather than 0.999 because runs here last
// a few hundred steps, in which a slower second moment would never settle.
func DefaultAdam() AdamConfig { return AdamConfig{Beta1: 0.9, Beta2: 0.98, Epsilon: 1e-8} }

// Adam is the optimizer with its state. Mean, Square and Steps are stored in checkpoints so that a
// resumed run continues exactly.
type Adam struct {
	AdamConfig
	Mean, Square []float32
	Steps        int
}

// NewAdam makes an optimizer for n weights.
func NewAdam(cfg AdamConfig, n int) *Adam {
	return &Adam{AdamConfig: cfg, Mean: make([]float32, n), Square: make([]float32, n)}
}

// Step scales grad so that its norm is at most clip (0: no limit) and updates weights at the given
// learning rate. It returns the norm before clipping. A gradient that is not finite is an error
// and changes nothing.
func (o *Adam) Step(weights, grad []float32, rate, clip float64) (norm float64, err error) {
	var squares float64
	for _, g := range grad {
		squares += float64(g) * float64(g)
	}
	norm = math.Sqrt(squares)
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		return norm,
			fmt.Errorf("optimizer step %d: gradient norm is %v; lower the learning rate or look for damaged log-probabilities",
				o.Steps+1, norm)
	}
	scale := 1.0
	if clip > 0 && norm > clip {
		scale = clip / norm
	}
	o.Steps++
	b1, b2 := float32(o.Beta1), float32(o.Beta2)
	unbias1 := 1 - math.Pow(o.Beta1, float64(o.Steps))
	unbias2 := 1 - math.Pow(o.Beta2, float64(o.Steps))
	step, decay := float32(rate/unbias1), float32(1-rate*o.WeightDecay)
	root, eps, s := float32(1/unbias2), float32(o.Epsilon), float32(scale)
	for i, g := range grad {
		g *= s
		m := b1*o.Mean[i] + (1-b1)*g
		q := b2*o.Square[i] + (1-b2)*g*g
		o.Mean[i], o.Square[i] = m, q
		weights[i] = decay*weights[i] - step*m/(float32(math.Sqrt(float64(q*root)))+eps)
	}
	return norm, nil
}
