package lm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Sampling says how a next token is drawn from logits.
type Sampling struct {
	// Temperature divides the logits; 0 always takes the most likely token (the lowest id of equals).
	Temperature float64
	// TopP keeps the smallest set of most likely tokens whose probabilities add up to at least this.
	TopP float64
}

// Validate reports a value out of range.
func (s Sampling) Validate() error {
	if !(s.Temperature >= 0) || math.IsInf(s.Temperature, 0) {
		return fmt.Errorf("temperature: want 0 or more, got %v", s.Temperature)
	}
	if !(s.TopP > 0 && s.TopP <= 1) {
		return fmt.Errorf("top_p: want more than 0 and at most 1, got %v", s.TopP)
	}
	return nil
}

// Pick draws a token. The log-probability it returns is the model's own, before temperature and
// TopP, as a trainer recomputes it from the same weights. It draws one number from rng, or none at
// temperature 0.
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
		weights[i] = math.Exp((float64(v) - float64(logits[best])) / s.Temperature)
		sum += weights[i]
	}
	if s.TopP < 1 {
		sum = nucleus(weights, s.TopP*sum)
	}
	u *= sum
	for i, w := range weights {
		if u -= w; u < 0 {
			return int32(i)
		}
	}
	return best // only rounding leads here
}

// nucleus zeroes all but the largest weights that together reach need, and returns their sum.
func nucleus(weights []float64, need float64) (sum float64) {
	order := make([]int, len(weights))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case weights[a] > weights[b]:
			return -1
		case weights[a] < weights[b]:
			return 1
		}
		return 0
	})
	for _, i := range order {
		if sum >= need {
			weights[i] = 0
			continue
		}
		sum += weights[i]
	}
	return sum
}
