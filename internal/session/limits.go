package session

import (
	"bytes"
	"fmt"
)

// Limits of a request, which a program writes that may be hostile.
const (
	maxValues    = 1 << 18 // JSON values; each takes some hundred bytes of memory when it is decoded
	maxDepth     = 256     // lists and objects within each other
	maxStops     = 64      // an engine looks for each of them after each token
	maxStopBytes = 1024    // of one
)

// bounded counts what decoding JSON would take before it is decoded.
func bounded(body []byte) error {
	values, depth := 1, 0
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '"':
			i += stringEnd(body[i+1:]) + 1
		case '{', '[':
			values++
			depth++
		case '}', ']':
			depth--
		case ',':
			values++
		}
		if values > maxValues || depth > maxDepth {
			return fmt.Errorf("a session reads JSON of at most %d values, at most %d of them within each other", maxValues,
				maxDepth)
		}
	}
	return nil
}

// Reads reports whether a session decodes this JSON again, as a part of a request and of its journal.
func Reads(raw []byte) bool { return bounded(raw) == nil }

// readable refuses arguments of a tool, a text that holds JSON, which whoever reads them in a session later could not:
// the program that scores it would end.
func readable(arguments string) error {
	if err := bounded([]byte(arguments)); err != nil {
		return fmt.Errorf("arguments: %w", err)
	}
	return nil
}

// stringEnd is where the quote stands that ends a string.
func stringEnd(body []byte) int {
	for at := 0; ; {
		n := bytes.IndexAny(body[at:], `"\`)
		switch {
		case n < 0:
			return len(body)
		case body[at+n] == '"':
			return at + n
		}
		at = min(at+n+2, len(body))
	}
}
