package view

import (
	"fmt"
	"math"
	"strings"
)

var bars = []rune("▁▂▃▄▅▆▇█")

// Sparkline draws values as one line of bars, the smallest value lowest. Equal values are drawn between 0 and 1:
// rewards that are all 1 do not look like those that are all 0.
func Sparkline(values []float64) string {
	low, high := bounds(values)
	if low == high {
		low, high = min(0, low), max(1, high)
	}
	var b strings.Builder
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			b.WriteByte(' ')
			continue
		}
		b.WriteRune(bars[level(v, low, high, len(bars))])
	}
	return b.String()
}

// Plot draws values as a bar chart of some height with its scale at the left, one column a value.
func Plot(values []float64, height int) []string {
	low, high := bounds(values)
	lines := make([]string, height)
	for row := range height {
		var b strings.Builder
		switch row {
		case 0:
			fmt.Fprintf(&b, "%8.3g ┤", high)
		case height - 1:
			fmt.Fprintf(&b, "%8.3g ┤", low)
		default:
			fmt.Fprintf(&b, "%8s │", "")
		}
		floor := (height - 1 - row) * len(bars)
		for _, v := range values {
			switch at := level(v, low, high, height*len(bars)); {
			case math.IsNaN(v) || math.IsInf(v, 0) || at < floor:
				b.WriteByte(' ')
			case at >= floor+len(bars):
				b.WriteRune(bars[len(bars)-1])
			default:
				b.WriteRune(bars[at-floor])
			}
		}
		lines[row] = strings.TrimRight(b.String(), " ")
	}
	return lines
}

func bounds(values []float64) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			low, high = math.Min(low, v), math.Max(high, v)
		}
	}
	if low > high {
		return 0, 0
	}
	return low, high
}

// level puts v into one of n levels between low and high; a flat series is at the bottom.
func level(v, low, high float64, n int) int {
	if high <= low || math.IsNaN(v) {
		return 0
	}
	return min(max(int((v-low)/(high-low)*float64(n)), 0), n-1)
}
