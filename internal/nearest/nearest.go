// Package nearest finds the name that was probably meant.
package nearest

import (
	"strings"

	"github.com/agext/levenshtein"
)

// Name returns the known name that the given one is probably meant to be; empty: none is near.
func Name(given string, known []string) string {
	best, distance := "", 4
	if len(given) < 6 {
		distance = 3
	}
	for _, name := range known {
		if d := levenshtein.Distance(strings.ToLower(given), strings.ToLower(name), nil); d < distance &&
			d < max(len(name), len(given)) {
			best, distance = name, d
		}
	}
	return best
}
