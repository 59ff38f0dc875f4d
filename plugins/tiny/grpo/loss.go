package grpo

import (
	"math"

	"github.com/recipe-rl/recipe/plugins/tiny/lm"
)

// Bounds that keep exp from overflowing when two policies have drifted far apart; the values are
// those verl uses, so that losses can be compared with it.
const (
	maxLogRatio = 20
	maxKL       = 10
)

// token is what the loss needs to know about one trained token.
type token struct {
	id        int32
	old       float64 // log-probability under the policy that sampled
	reference float64 // log-probability under the frozen reference
	advantage float64
	before    float64 // log-probability before the batch's first optimizer step, once it is scored
	scored    bool
}

// tokenLoss is the outcome for one token, before division by the number of tokens.
type tokenLoss struct {
	policy, kl float64
	slope      float64 // derivative of policy + coefficient·kl with respect to the log-probability
	clipped    bool
}

// loss is the clipped surrogate with dual clip (Ye et al. 2020), and the k3 estimate of the KL
// divergence from the reference (Schulman 2020), of a token that now has log-probability logp.
func (c *Config) loss(logp float64, k token) tokenLoss {
	var out tokenLoss
	delta := logp - k.old
	ratio := math.Exp(min(max(delta, -maxLogRatio), maxLogRatio))
	free := -k.advantage * ratio
	bound := -k.advantage * min(max(ratio, 1-c.ClipLow), 1+c.ClipHigh)
	out.policy, out.slope = free, free
	if bound > free {
		out.policy, out.slope, out.clipped = bound, 0, true
	}
	if k.advantage < 0 && c.DualClip > 0 && out.policy > -k.advantage*c.DualClip {
		out.policy, out.slope, out.clipped = -k.advantage*c.DualClip, 0, true
	}
	if math.Abs(delta) > maxLogRatio {
		out.slope = 0
	}
	if c.KL > 0 {
		var slope float64
		out.kl, slope = k3(logp, k.reference)
		out.slope += c.KL * slope
	}
	return out
}

// k3 estimates the divergence of a policy from a reference at one sampled token, and the derivative
// of that estimate with respect to the policy's log-probability.
func k3(logp, reference float64) (value, slope float64) {
	gap := reference - logp
	x := min(max(gap, -maxLogRatio), maxLogRatio)
	value, slope = math.Exp(x)-x-1, 1-math.Exp(x)
	if value > maxKL || math.Abs(gap) > maxLogRatio {
		slope = 0
	}
	return min(value, maxKL), slope
}

// gradient adds weight × the gradient of the token's loss with respect to the logits to dlogits
// (skipped when nil), and returns the loss and the entropy of the distribution.
func (c *Config) gradient(k token, weight float64, logits, dlogits []float32) (tokenLoss, float64) {
	lse := lm.LogSumExp(logits)
	out := c.loss(float64(logits[k.id])-lse, k)
	push := out.slope * weight
	var entropy float64
	for i, v := range logits {
		logp := float64(v) - lse
		p := math.Exp(logp)
		entropy -= p * logp
		if dlogits != nil {
			dlogits[i] -= float32(push * p)
		}
	}
	if dlogits != nil {
		dlogits[k.id] += float32(push)
	}
	return out, entropy
}
