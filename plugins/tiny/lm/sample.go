package lm

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Sampling describes how a next token is drawn from logits.
type Sampling struct {
	// Temperature divides the logits; 0 always takes the most likely token (the lowest id of equals).
	Temperature float64
	// TopP keeps the smallest set of most likely tokens whose probabilities add up to at least this.
	TopP float64
	// TopK keeps so many of the most likely tokens; 0 keeps all.
	TopK int
	// MinP keeps the tokens whose probability is at least this share of the most likely one's.
	MinP float64
}

// Validate reports a value out of range.
func (s Sampling) Validate() error {
	if !(s.Temperature >= 0) || math.IsInf(s.Temperature, 0) {
		return fmt.Errorf("temperature: want 0 or more, got %v", s.Temperature)
	}
	if !(s.TopP > 0 && s.TopP <= 1) {
		return fmt.Errorf("top_p: want more than 0 and at most 1, got %v", s.TopP)
	}
	if s.TopK < 0 {
		return fmt.Errorf("top_k: want 1 or more, or 0 for all tokens, got %d", s.TopK)
	}
	if !(s.MinP >= 0 && s.MinP <= 1) {
		return fmt.Errorf("min_p: want 0 to 1, got %v", s.MinP)
	}
	return nil
}

// Pick draws a token. The log-probability it returns is the model's own, before temperature
// and what leaves tokens out, as a trainer recomputes it from the same weights. It draws one number
// from rng, or none at temperature 0.
func (s Sampling) Pick(logits []float32, rng *rand.Rand) (id int32, logProb float64) {
	if s.Temperature == 0 {
		id = greedy(logits)
	} else {
		id = s.draw(logits, rng.Float64())
	}
	return id, float64(logits[id]) - LogSumExp(logits)
}

func greedy(logits []float32) int32 {
	best := 0
	for i, v := range logits {
		if v > logits[best] {
			best = i
		}
	}
	return int32(best)
}

func (s Sampling) draw(logits []float32, u float64) int32 {
	best := greedy(logits)
	weights, sum := make([]float64, len(logits)), 0.0
	for i, v := range logits {
		weights[i] = math.Exp((float64(v) - float64(logits[best])) / s.Temperature) // 1 for the most likely token
		if weights[i] < s.MinP {
			weights[i] = 0
		}
		sum += weights[i]
	}
	if s.TopK > 0 && s.TopK < len(weights) {
		sum = largest(weights, func(_ float64, kept int) bool { return kept < s.TopK })
	}
	if s.TopP < 1 {
		need := s.TopP * sum
		sum = largest(weights, func(sum float64, _ int) bool { return sum < need })
	}
	u *= sum
	for i, w := range weights {
		if u -= w; u < 0 {
			return int32(i)
		}
	}
	return best // only rounding leads here
}

// largest zeroes all but the largest weights, the lower of equals first: another one is kept as long as more, given the
// sum and the number of those that are kept, is true. It returns their sum.
func largest(weights []float64, more func(sum float64, kept int) bool) (sum float64) {
	order := make([]int, len(weights))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(weights[b], weights[a]) })
	for kept, i := range order {
		if !more(sum, kept) {
			weights[i] = 0
			continue
		}
		sum += weights[i]
	}
	return sum
}
