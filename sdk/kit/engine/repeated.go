package engine

import (
	"fmt"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
)

// repeated counts lines that a server writes again and again, such as a warning for each request: all of them are in
// its log, and the run's events hold the first, the tenth, the hundredth and so on. Lines that differ only in numbers
// and ids count as the same.
type repeated map[string]int

// mostRepeated bounds how many lines are remembered.
const mostRepeated = 1000

var varying = lazyregexp.New(`[0-9a-fA-F]{8,}|\d+`)

// count counts a line and says whether it is to be logged, and in which form.
func (r repeated) count(text string) (string, bool) {
	if len(r) >= mostRepeated {
		clear(r)
	}
	kind := varying.ReplaceAllLiteralString(text, "#")
	r[kind]++
	n := r[kind]
	for power := 1; power <= n; power *= 10 {
		switch {
		case power != n:
		case n == 1:
			return text, true
		default:
			return fmt.Sprintf("%s (%d times so far)", text, n), true
		}
	}
	return "", false
}
