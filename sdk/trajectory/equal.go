package trajectory

import (
	"math"
	"slices"
)

// Scores that differ by less than rounding are equal: 0.1 + 0.2 and 0.3 are one score.
const (
	roundingOf = 1e-9 // of the larger one
	rounding   = 1e-12
)

// EqualScores reports whether there is nothing to learn from the scores of a group: they are equal but for rounding.
func EqualScores(scores []float64) bool {
	if len(scores) == 0 {
		return true
	}
	low, high := slices.Min(scores), slices.Max(scores)
	return high-low <= max(rounding, roundingOf*max(math.Abs(low), math.Abs(high)))
}
