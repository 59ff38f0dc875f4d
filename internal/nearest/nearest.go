// Package nearest finds the name that was probably meant.
package nearest

import (
	"slices"
	"strings"
)

// A recipe may have thousands of names, and of mistakes in them, each as long as the file.
const (
	longest = 64  // letters of a name that is compared
	most    = 500 // names that are compared
)

// Name returns the known name that the given one is probably meant to be; empty: none is near, or there are too many.
func Name(given string, known []string) string {
	best, distance := "", 4
	if len(given) < 6 {
		distance = 3
	}
	if len(given) > 4*longest || len(known) > most {
		return ""
	}
	letters := []rune(strings.ToLower(given))
	for _, name := range known {
		if len(name) > 4*longest {
			continue
		}
		if d := edits(letters, []rune(strings.ToLower(name)), distance); d < distance && d < max(len(name), len(given)) {
			best, distance = name, d
		}
	}
	return best
}

// edits is the number of letters that are to be changed, put in or left out to make b of a; limit: so many, or more.
// Only the part of the usual table is computed that can be below the limit.
func edits(a, b []rune, limit int) int {
	if len(a) > longest || len(b) > longest || max(len(a)-len(b), len(b)-len(a)) >= limit {
		return limit
	}
	row := make([]int, len(b)+1) // of the first i letters of a
	for j := range row {
		row[j] = min(j, limit)
	}
	for i := 1; i <= len(a); i++ {
		first, last := max(1, i-limit), min(len(b), i+limit)
		before := row[first-1] // one row and one column before
		row[first-1] = limit
		if first == 1 {
			row[0] = min(i, limit)
		}
		for j := first; j <= last; j++ {
			d := before
			if a[i-1] != b[j-1] {
				d = 1 + min(before, row[j-1], row[j])
			}
			before, row[j] = row[j], min(d, limit)
		}
		if slices.Min(row[first-1:last+1]) >= limit {
			return limit
		}
	}
	return row[len(b)]
}
