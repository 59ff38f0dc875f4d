package lsp

import (
	"slices"
	"strings"
	"unicode/utf8"

	"go.lsp.dev/protocol"
)

// text is the content of a file with the places where its lines start. It does not change.
type text struct {
	src   string
	lines []int // offset of the first byte of each line; a line ends with \n, \r\n or \r
	marks []mark
}

// mark is a place in a text, with the number of UTF-16 code units before it. There is one in each marked bytes, so that
// a position in a long line costs no more than one in a short line.
type mark struct{ offset, units int }

const marked = 256

func newText(src string) *text {
	t := &text{src: src, lines: make([]int, 1, 1+strings.Count(src, "\n"))}
	for i := 0; i < len(src); i++ {
		switch {
		case src[i] == '\n', src[i] == '\r' && (i+1 == len(src) || src[i+1] != '\n'):
			t.lines = append(t.lines, i+1)
		}
	}
	units, next := 0, 0
	for i, r := range src {
		if i >= next {
			t.marks, next = append(t.marks, mark{i, units}), i+marked
		}
		units += units16(r)
	}
	return t
}

// units counts the UTF-16 code units of the characters that end before an offset.
func (t *text) units(offset int) int {
	n, found := slices.BinarySearchFunc(t.marks, offset, func(m mark, at int) int { return m.offset - at })
	if !found {
		n--
	}
	if n < 0 {
		return 0
	}
	m := t.marks[n]
	for i, r := range t.src[m.offset:] {
		if m.offset+i+width(t.src[m.offset+i:]) > offset {
			break
		}
		m.units += units16(r)
	}
	return m.units
}

// line is the text of a line without its end.
func (t *text) line(n int) string {
	end := len(t.src)
	if n+1 < len(t.lines) {
		end = t.lines[n+1]
	}
	return strings.TrimRight(t.src[t.lines[n]:end], "\r\n")
}

// position converts an offset in bytes to a line and a number of UTF-16 code units. An offset outside the text, inside
// a character or inside the end of a line is moved to the nearest place before it.
func (t *text) position(offset int) protocol.Position {
	offset = min(max(offset, 0), len(t.src))
	n, found := slices.BinarySearch(t.lines, offset)
	if !found {
		n--
	}
	start := t.lines[n]
	units := t.units(min(offset, start+len(t.line(n)))) - t.units(start)
	return protocol.Position{Line: uint32(n), Character: uint32(units)}
}

// offset is the inverse of position. A place behind the end of its line is the end of the line, one behind the last
// line the end of the text, and one between the halves of a surrogate pair the start of the character.
func (t *text) offset(p protocol.Position) int {
	if int64(p.Line) >= int64(len(t.lines)) {
		return len(t.src)
	}
	line, units := t.line(int(p.Line)), 0
	for i, r := range line {
		if units += units16(r); int64(units) > int64(p.Character) {
			return t.lines[p.Line] + i
		}
	}
	return t.lines[p.Line] + len(line)
}

func (t *text) span(r protocol.Range) span {
	s := span{t.offset(r.Start), t.offset(r.End)}
	if s.end < s.start {
		s.start, s.end = s.end, s.start
	}
	return s
}

func (t *text) rangeOf(s span) protocol.Range {
	return protocol.Range{Start: t.position(s.start), End: t.position(max(s.start, s.end))}
}

// replace is the text with another content between two offsets.
func (t *text) replace(s span, content string) *text {
	return newText(t.src[:s.start] + content + t.src[s.end:])
}

// width is how many bytes the first character of s has. A byte that is not UTF-8 counts as one character.
func width(s string) int {
	_, size := utf8.DecodeRuneInString(s)
	return size
}

func units16(r rune) int {
	if r > 0xffff {
		return 2
	}
	return 1
}

// span is a part of a text, in bytes.
type span struct{ start, end int }

// holds reports whether the offset is inside the span or directly behind it, where the cursor stands after typing it.
func (s span) holds(offset int) bool { return s.start <= offset && offset <= s.end }

func (s span) shift(by int) span { return span{s.start + by, s.end + by} }

func (s span) of(src string) string {
	start := min(max(s.start, 0), len(src))
	return src[start:max(start, min(s.end, len(src)))]
}
