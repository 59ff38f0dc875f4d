package group

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// The functions of this file walk over one value and return the index after it, or -1 when it is not what they expect.

// skipper walks over one value.
type skipper func(b []byte, i int) int

// lists walks over an array of arrays and notes the length of each.
func (r *Reader) lists(f, i int) int {
	b := r.body
	if i >= len(b) || b[i] != '[' {
		return -1
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == ']' {
		return i + 1
	}
	for {
		if r.counts[f] == maxSequences {
			return -1
		}
		var n int
		from := i
		switch f {
		case fieldTokens:
			i, n = skipIntegers(b, i, skipID)
			r.texts = append(r.texts, span{from + 1, i - 1})
		case fieldMasks:
			if i, n = r.likeTokens(len(r.lens[f]), i); i < 0 {
				i, n = skipIntegers(b, from, skipInt32)
			}
		default:
			i, n = skipNumbers(b, i)
		}
		if i < 0 {
			return -1
		}
		r.lens[f] = append(r.lens[f], int32(n))
		r.counts[f]++
		i = skipSpace(b, i)
		if i >= len(b) {
			return -1
		}
		if b[i] == ']' {
			return i + 1
		}
		if b[i] != ',' {
			return -1
		}
		i = skipSpace(b, i+1)
	}
}

// masked is a token that is not trained on, followed by another, as Python writes it.
const masked = "-100, "

// likeTokens walks over the mask of a sequence in the form that nearly all have: some -100, then the token ids, with
// the same text as in tokens, which has been checked there. -1: it has another form.
func (r *Reader) likeTokens(sequence, i int) (end, count int) {
	b := r.body
	if sequence >= len(r.texts) || i >= len(b) || b[i] != '[' {
		return -1, 0
	}
	i++
	for len(b)-i >= len(masked) && string(b[i:i+len(masked)]) == masked {
		i += len(masked)
		count++
	}
	n := bytes.IndexByte(b[i:], ']')
	if n <= 0 {
		return -1, 0
	}
	rest, text := b[i:i+n], b[r.texts[sequence].from:r.texts[sequence].to]
	at := len(text) - len(rest)
	if at < 0 || rest[0] != '-' && rest[0]-'0' > 9 || at > 0 && text[at-1] != ' ' && text[at-1] != ',' ||
		!bytes.Equal(text[at:], rest) {
		return -1, 0
	}
	return i + n + 1, count + bytes.Count(rest, []byte{','}) + 1
}

// skipIntegers walks over an array of integers and counts them. Those that are not of up to six digits are left to
// other.
func skipIntegers(b []byte, i int, other skipper) (end, count int) {
	if i >= len(b) || b[i] != '[' {
		return -1, 0
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == ']' {
		return i + 1, 0
	}
	for {
		for len(b)-i >= 8 { // up to six digits, a comma and a space, as Python writes them
			w := binary.LittleEndian.Uint64(b[i:])
			x := w ^ '0'*ones
			n := bits.TrailingZeros64((x+0x76*ones|x)&highs) / 8
			if n == 0 || n > 6 || n > 1 && w&0xff == '0' ||
				w>>(n*8%64)&0xffff != ','|' '<<8 {
				break
			}
			i += n + 2
			count++
		}
		if i = other(b, i); i < 0 {
			return -1, 0
		}
		count++
		if len(b)-i >= 2 && b[i] == ',' && b[i+1] == ' ' {
			i += 2
			continue
		}
		var more bool
		if i, more = next(b, i); !more {
			return i, count
		}
	}
}

// skipNumbers walks over an array of numbers and counts them.
func skipNumbers(b []byte, i int) (end, count int) {
	if i >= len(b) || b[i] != '[' {
		return -1, 0
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == ']' {
		return i + 1, 0
	}
	for {
		for len(b)-i >= 40 { // a digit, a point and up to 31 digits, a comma and a space, as Python writes most of them
			end := i + skipShortFraction(b[i:i+40])
			if end == i {
				break
			}
			i = end
			count++
		}
		if i = skipNumber(b, i); i < 0 {
			return -1, 0
		}
		count++
		if len(b)-i >= 2 && b[i] == ',' && b[i+1] == ' ' {
			i += 2
			continue
		}
		var more bool
		if i, more = next(b, i); !more {
			return i, count
		}
	}
}

// skipShortFraction walks over a number such as "-0.25, " at the start of forty bytes; 0 when it has another form. How
// many digits follow the point differs from number to number, so the end is found without a branch that would be
// mispredicted half of the time.
func skipShortFraction(b []byte) int {
	_ = b[39]
	i := 2
	if b[0] == '-' {
		i = 3
	}
	if b[i-2]-'0' > 9 || b[i-1] != '.' {
		return 0
	}
	n := digits8(binary.LittleEndian.Uint64(b[i:]))
	second := digits8(binary.LittleEndian.Uint64(b[i+8:]))
	third := digits8(binary.LittleEndian.Uint64(b[i+16:]))
	n += (second + third&-(second>>3)) & -(n >> 3)
	i += n
	if n == 0 || binary.LittleEndian.Uint16(b[i:]) != ','|' '<<8 { // after 24 digits there may be more
		return 0
	}
	return i + 2
}

// digits8 is the number of ASCII digits at the start of the eight bytes of w, 8 when all are.
func digits8(w uint64) int {
	x := w ^ '0'*ones
	return bits.TrailingZeros64((x+0x76*ones|x)&highs) >> 3
}

// next moves past the comma after an element; more is false at the end of the array, where the index is the one after
// it, or -1 when something else follows.
func next(b []byte, i int) (at int, more bool) {
	i = skipSpace(b, i)
	if i >= len(b) {
		return -1, false
	}
	switch b[i] {
	case ',':
		return skipSpace(b, i+1), true
	case ']':
		return i + 1, false
	}
	return -1, false
}

// skipList walks over an array with the given walker for its elements, and counts them.
func skipList(b []byte, i int, element skipper) (end, count int) {
	if i >= len(b) || b[i] != '[' {
		return -1, 0
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == ']' {
		return i + 1, 0
	}
	for {
		if i = element(b, i); i < 0 {
			return -1, 0
		}
		count++
		var more bool
		if i, more = next(b, i); !more {
			return i, count
		}
	}
}

// skipDeep walks over an array of arrays.
func skipDeep(element skipper) skipper {
	return func(b []byte, i int) int {
		end, _ := skipList(b, i, func(b []byte, i int) int {
			end, _ := skipList(b, i, element)
			return end
		})
		return end
	}
}

// skipOverride walks over an object that makes the sequence a rollout of its own. The exact reader counts the others.
func skipOverride(b []byte, i int) int {
	return skipMembers(b, i, 2, func(key []byte) bool {
		return string(key) != rolloutKey && bytes.IndexByte(key, '\\') < 0
	})
}

// skipConversation walks over a list of messages, each with a role and a content.
func skipConversation(b []byte, i int) int {
	end, _ := skipList(b, i, func(b []byte, i int) int {
		var role, content bool
		end := skipMembers(b, i, 3, func(key []byte) bool {
			role = role || string(key) == "role"
			content = content || string(key) == "content"
			return true
		})
		if !role || !content {
			return -1 // or the keys are written with escapes, which the exact reader knows
		}
		return end
	})
	return end
}

// skipValue walks over any value.
func skipValue(b []byte, i, depth int) int {
	if i >= len(b) || depth > maxDepth {
		return -1
	}
	switch c := b[i]; {
	case c == '"':
		return skipString(b, i)
	case c == '{':
		return skipMembers(b, i, depth, nil)
	case c == '[':
		end, _ := skipList(b, i, func(b []byte, i int) int { return skipValue(b, i, depth+1) })
		return end
	case c == 't':
		return word(b, i, "true")
	case c == 'f':
		return word(b, i, "false")
	case c == 'n':
		return word(b, i, "null")
	}
	return skipNumber(b, i)
}

// skipMembers walks over an object and shows its keys.
func skipMembers(b []byte, i, depth int, see func(key []byte) bool) int {
	if i >= len(b) || b[i] != '{' || depth > maxDepth {
		return -1
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == '}' {
		return i + 1
	}
	for {
		if i >= len(b) || b[i] != '"' {
			return -1
		}
		end := skipString(b, i)
		if end < 0 || see != nil && !see(b[i+1:end-1]) {
			return -1
		}
		i = skipSpace(b, end)
		if i >= len(b) || b[i] != ':' {
			return -1
		}
		if i = skipValue(b, skipSpace(b, i+1), depth+1); i < 0 {
			return -1
		}
		i = skipSpace(b, i)
		if i >= len(b) {
			return -1
		}
		if b[i] == '}' {
			return i + 1
		}
		if b[i] != ',' {
			return -1
		}
		i = skipSpace(b, i+1)
	}
}

// word walks over a literal.
func word(b []byte, i int, w string) int {
	if len(b)-i < len(w) || string(b[i:i+len(w)]) != w {
		return -1
	}
	return i + len(w)
}
