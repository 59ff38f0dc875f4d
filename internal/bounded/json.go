package bounded

import "bytes"

// FitsJSON reports whether JSON has at most so many values, and at most so many lists and objects within each other. It
// looks before anything is decoded, and takes text that is no JSON for what it resembles.
func FitsJSON(text []byte, values, depth int) bool {
	_, fits := CountJSON(text, values, depth)
	return fits
}

// CountJSON is FitsJSON, and returns how many values there are when they fit.
func CountJSON(text []byte, values, depth int) (n int, fits bool) {
	n, deep := 1, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i += stringEnd(text[i+1:]) + 1
		case '{', '[':
			n++
			deep++
		case '}', ']':
			deep--
		case ',':
			n++
		}
		if n > values || deep > depth {
			return n, false
		}
	}
	return n, true
}

// stringEnd is where the quote stands that ends a string.
func stringEnd(text []byte) int {
	for at := 0; ; {
		n := bytes.IndexAny(text[at:], `"\`)
		switch {
		case n < 0:
			return len(text)
		case text[at+n] == '"':
			return at + n
		}
		at = min(at+n+2, len(text))
	}
}
