package session

import (
	"fmt"

	"github.com/recipe-rl/recipe/internal/bounded"
)

// Limits of a request, which a program writes that may be hostile.
const (
	maxValues    = 1 << 18 // JSON values; each takes some hundred bytes of memory when it is decoded
	maxDepth     = 256     // lists and objects within each other
	maxStops     = 64      // an engine looks for each of them after each token
	maxStopBytes = 1024    // of one
)

// checkSize counts what decoding JSON would take before it is decoded.
func checkSize(body []byte) error {
	if !bounded.FitsJSON(body, maxValues, maxDepth) {
		return fmt.Errorf("a session reads JSON of at most %d values, at most %d of them within each other", maxValues,
			maxDepth)
	}
	return nil
}

// Reads reports whether a session decodes this JSON again, as a part of a request and of its journal.
func Reads(raw []byte) bool { return checkSize(raw) == nil }

// readable refuses arguments of a tool, a text that holds JSON, which whoever reads them in a session later could not:
// the program that scores it would end.
func readable(arguments string) error {
	if err := checkSize([]byte(arguments)); err != nil {
		return fmt.Errorf("arguments: %w", err)
	}
	return nil
}
