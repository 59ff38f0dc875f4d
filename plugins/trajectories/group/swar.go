package group

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// The loops below look at eight bytes at a time: a post is mostly digits, and checking them one by one would dominate
// the cost.

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// digitRun is the number of ASCII digits at the start of b.
func digitRun(b []byte) int {
	n := 0
	for len(b) >= 8 {
		// A digit becomes 0..9, and adding 0x76 leaves its high bit clear. Carries only reach bytes after the first
		// that is no digit.
		x := binary.LittleEndian.Uint64(b) ^ '0'*ones
		if other := (x + 0x76*ones | x) & highs; other != 0 {
			return n + bits.TrailingZeros64(other)/8
		}
		n += 8
		b = b[8:]
	}
	for len(b) > 0 && b[0]-'0' <= 9 {
		n++
		b = b[1:]
	}
	return n
}

// plainRun is the number of bytes at the start of b that need no attention inside a JSON string: printable ASCII
// without quote and backslash.
func plainRun(b []byte) int {
	n := 0
	for len(b) >= 8 {
		x := binary.LittleEndian.Uint64(b)
		quote, slash := x^'"'*ones, x^'\\'*ones
		special := ((quote-ones)&^quote | (slash-ones)&^slash | (x-0x20*ones)&^x | x) & highs
		if special != 0 {
			return n + bits.TrailingZeros64(special)/8
		}
		n += 8
		b = b[8:]
	}
	for len(b) > 0 && b[0] >= 0x20 && b[0] < 0x80 && b[0] != '"' && b[0] != '\\' {
		n++
		b = b[1:]
	}
	return n
}

// skipString returns the index after the string that starts at b[i], or -1 when it is not a valid one.
func skipString(b []byte, i int) int {
	i++
	for i < len(b) {
		i += plainRun(b[i:])
		if i >= len(b) {
			return -1
		}
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c == '\\':
			if i+1 >= len(b) {
				return -1
			}
			switch b[i+1] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
				i += 2
			case 'u':
				if i+6 > len(b) || hexValue(b[i+2])|hexValue(b[i+3])|hexValue(b[i+4])|hexValue(b[i+5]) < 0 {
					return -1
				}
				i += 6
			default:
				return -1
			}
		case c < 0x20:
			return -1
		default:
			r, size := utf8.DecodeRune(b[i:])
			if r == utf8.RuneError && size <= 1 {
				return -1
			}
			i += size
		}
	}
	return -1
}

// skipSpace returns the index of the first byte at or after i that is not white space.
func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipInteger returns the index after the integer at b[i], or -1. Fractions and exponents are for the exact reader.
func skipInteger(b []byte, i int) int {
	if i < len(b) && b[i] == '-' {
		i++
	}
	n := digitRun(b[i:])
	if n == 0 || n > 1 && b[i] == '0' {
		return -1
	}
	return i + n
}

// skipInt32 is skipInteger for up to nine digits, which always fit an int32. The exact reader checks longer ones.
func skipInt32(b []byte, i int) int {
	end := skipInteger(b, i)
	if end-i > 9 {
		return -1
	}
	return end
}

// skipID is skipInt32 without a sign.
func skipID(b []byte, i int) int {
	if i < len(b) && b[i] == '-' {
		return -1
	}
	return skipInt32(b, i)
}

// skipNumber returns the index after the number at b[i], or -1 when it is none or might not be finite in single
// precision.
func skipNumber(b []byte, i int) int {
	from := i
	if i = skipInteger(b, i); i < 0 || i-from > 24 {
		return -1
	}
	if i < len(b) && b[i] == '.' {
		n := digitRun(b[i+1:])
		if n == 0 {
			return -1
		}
		i += 1 + n
	}
	if i-from > 60 {
		return -1 // rare: left to the exact reader
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		n := digitRun(b[i:])
		if n == 0 || n > 2 || b[i-1] != '-' && (n > 1 && b[i] != '0') { // up to 1e9 times 24 digits stays finite
			return -1
		}
		i += n
	}
	return i
}
