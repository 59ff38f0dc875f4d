package group

import (
	"encoding/binary"
	"strconv"
	"unsafe"
)

// Columns are the numbers of a group as a binary reply carries them. Its memory belongs to the Reader that filled it,
// and is used again for the next group.
type Columns struct {
	Tokens, Masks Lists[int32]
	Scores        []float64
	Advantages    Lists[float64]
	RefLogprobs   Lists[float64]
	Logprobs      Lists[float64] // inference_logprobs
	// Rest is a JSON object of all other fields, as they stand in the group.
	Rest []byte
}

// Lists is a list of lists, back to back.
type Lists[T any] struct {
	Given  bool  // false for null
	Ends   []int // of each inner list in Values
	Values []T
}

func (l *Lists[T]) reset() { l.Given, l.Ends, l.Values = false, l.Ends[:0], l.Values[:0] }

// Columns reads a group's JSON, as Parse made it, into c. It returns false for a group that has not exactly this form:
// ids beyond 32 bits, numbers that a double does not hold exactly, keys with escapes. Then c is undefined.
func (r *Reader) Columns(json []byte, c *Columns) bool {
	g, end := r.fast(json, 0)
	if g == nil || end != len(json) || r.extra {
		return false
	}
	text := func(f int) []byte { return json[r.spans[f].from:r.spans[f].to] }
	ok := readLists(&c.Tokens, text(fieldTokens), readInt32) && readLists(&c.Masks, text(fieldMasks), readInt32)
	if ok {
		c.Scores, _, ok = readItems(c.Scores[:0], text(fieldScores), 0, readFloat)
	}
	for f, to := range map[int]*Lists[float64]{fieldAdvantages: &c.Advantages, fieldRefLogprobs: &c.RefLogprobs,
		fieldInferenceLogprobs: &c.Logprobs} {
		ok = ok && readLists(to, text(f), readFloat)
	}
	c.Rest = append(c.Rest[:0], '{')
	for f, name := range names {
		switch f {
		case fieldTokens, fieldMasks, fieldScores, fieldAdvantages, fieldRefLogprobs, fieldInferenceLogprobs:
			continue
		}
		if s := r.spans[f]; s != (span{}) {
			if len(c.Rest) > 1 {
				c.Rest = append(c.Rest, ',')
			}
			c.Rest = append(append(append(c.Rest, '"'), name...), `":`...)
			c.Rest = append(c.Rest, json[s.from:s.to]...)
		}
	}
	c.Rest = append(c.Rest, '}')
	return ok
}

// number reads one number and returns the index after it, or -1.
type number[T any] func(b []byte, i int) (v T, end int)

func readLists[T any](to *Lists[T], b []byte, read number[T]) bool {
	to.reset()
	if len(b) == 0 || b[0] == 'n' {
		return true
	}
	to.Given = true
	i := skipSpace(b, 1)
	for b[i] != ']' {
		var ok bool
		if to.Values, i, ok = readItems(to.Values, b, i, read); !ok {
			return false
		}
		to.Ends = append(to.Ends, len(to.Values))
		if i = skipSpace(b, i); b[i] == ',' {
			i = skipSpace(b, i+1)
		}
	}
	return true
}

// readItems reads the array at b[i], which has been validated.
func readItems[T any](to []T, b []byte, i int, read number[T]) (all []T, end int, ok bool) {
	i = skipSpace(b, i+1)
	for b[i] != ']' {
		v, end := read(b, i)
		if end < 0 {
			return to, i, false
		}
		to = append(to, v)
		if i = skipSpace(b, end); b[i] == ',' {
			i = skipSpace(b, i+1)
		}
	}
	return to, i + 1, true
}

func readInt32(b []byte, i int) (v int32, end int) {
	negative := b[i] == '-'
	if negative {
		i++
	}
	n, from := int64(0), i
	for i < len(b) && b[i]-'0' <= 9 {
		n = n*10 + int64(b[i]-'0')
		i++
	}
	if i-from > 10 || n > 1<<31-1 {
		return 0, -1
	}
	if negative {
		n = -n
	}
	return int32(n), i
}

// tens are the powers of ten that a double holds exactly.
var tens = [...]float64{
	1e0,
	1e1,
	1e2,
	1e3,
	1e4,
	1e5,
	1e6,
	1e7,
	1e8,
	1e9,
	1e10,
	1e11,
	1e12,
	1e13,
	1e14,
	1e15,
	1e16,
	1e17,
	1e18,
	1e19,
	1e20,
	1e21,
	1e22,
}

// readFraction reads a number such as -0.6931471805599453 without looking at its digits one by one; -1 when it has
// another form. Its digits as an integer and a power of ten are both exact in a double, so one division rounds as it
// must.
func readFraction(b []byte, i int) (v float64, end int) {
	negative := b[i] == '-'
	if negative {
		i++
	}
	if len(b)-i < 27 || b[i]-'0' > 9 || b[i+1] != '.' {
		return 0, -1
	}
	n, from := uint64(b[i]-'0'), i+2
	for i = from; i < from+24; {
		w := binary.LittleEndian.Uint64(b[i:])
		k := digits8(w)
		if k > 0 {
			n = n*powers[k] + parse8(w, k)
			i += k
		}
		if k < 8 {
			break
		}
	}
	if i == from || i-from > 18 || n >= 1<<53 || b[i]|0x20 == 'e' || b[i]-'0' <= 9 {
		return 0, -1
	}
	v = float64(n) / tens[i-from]
	if negative {
		v = -v
	}
	return v, i
}

var powers = [...]uint64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8}

// parse8 is the number made of the first k digits of eight bytes.
func parse8(w uint64, k int) uint64 {
	w = (w ^ '0'*ones) << (64 - 8*k) // the others become zeros in front
	w = w*10 + w>>8
	return (w&0x000000FF000000FF*0x000F424000000064 + w>>16&0x000000FF000000FF*0x0000271000000001) >> 32
}

func readFloat(b []byte, i int) (v float64, end int) {
	if v, end = readFraction(b, i); end >= 0 {
		return v, end
	}
	whole := true
	for end = i; end < len(b); end++ {
		c := b[end]
		if c-'0' > 9 && c != '-' && c != '+' && c != '.' && c != 'e' && c != 'E' {
			break
		}
		whole = whole && c != '.' && c != 'e' && c != 'E'
	}
	if whole && end-i > 15 { // a client in Python reads it as an integer, exactly
		return 0, -1
	}
	v, err := strconv.ParseFloat(unsafe.String(&b[i], end-i), 64)
	if err != nil {
		return 0, -1
	}
	return v, end
}
