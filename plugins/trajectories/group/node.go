package group

import (
	"fmt"
	"unicode/utf8"
)

// kind is the JSON type of a node.
type kind byte

const (
	kindNull kind = iota
	kindBool
	kindNumber
	kindString
	kindArray
	kindObject
	kindNonFinite // NaN, Infinity and -Infinity, which Python writes and JSON does not have
)

// node is one JSON value: the bytes it was read from, and how many elements it has. The elements are not kept but read
// again when needed: as a tree, a body of one-digit numbers would take forty times its size.
type node struct {
	kind kind
	raw  []byte
	n    int // elements of an array, members of an object
}

// each yields the elements of an array, or the members of an object with their keys, in order of appearance.
func (n *node) each(yield func(i int, key string, value node) bool) {
	if n.n == 0 {
		return
	}
	p := parser{data: n.raw, pos: 1}
	for i := range n.n {
		p.space()
		key := ""
		if n.kind == kindObject {
			from := p.pos
			_ = p.str() // it has been read before, as all that follows
			key = unquote(p.data[from:p.pos])
			p.space()
			p.pos++
			p.space()
		}
		value, err := p.value(0)
		if err != nil || !yield(i, key, value) {
			return
		}
		p.space()
		p.pos++
	}
}

// elements yields the elements of an array with their indexes.
func (n *node) elements(yield func(i int, value node) bool) {
	if n.kind == kindArray {
		n.each(func(i int, _ string, value node) bool { return yield(i, value) })
	}
}

// get returns the value of the last member called name: like Python, the last of several equal keys counts.
func (n *node) get(name string) *node {
	if n.kind != kindObject {
		return nil
	}
	var found *node
	n.each(func(_ int, key string, value node) bool {
		if key == name {
			found = &value
		}
		return true
	})
	return found
}

// SyntaxError says where a body is not valid JSON.
type SyntaxError struct {
	Offset int    // in bytes from the start of the body
	Reason string // with Python's message where it has one, which clients of run-api know
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("the body is not JSON at byte %d: %s", e.Offset, e.Reason)
}

// maxDepth bounds nesting: deeper values would let a small body use much stack, and the JSON of Python, which reads and
// writes groups in trainers and environments, gives up at a few hundred levels.
const maxDepth = 128

// parser is a recursive descent over the whole body that keeps raw spans.
type parser struct {
	data []byte
	pos  int
	bad  *node // the first number that JSON or a double cannot hold
}

// parse reads exactly one JSON value with optional white space around it.
func parse(data []byte) (node, error) {
	p := parser{data: data}
	p.space()
	n, err := p.value(0)
	if err != nil {
		return node{}, err
	}
	p.space()
	if p.pos != len(p.data) {
		return node{}, p.fail("Extra data")
	}
	return n, nil
}

func (p *parser) fail(reason string) error { return &SyntaxError{Offset: p.pos, Reason: reason} }

func (p *parser) space() {
	for p.pos < len(p.data) {
		switch p.data[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return
		}
	}
}

func (p *parser) value(depth int) (node, error) {
	if depth > maxDepth {
		return node{}, p.fail(fmt.Sprintf("nested deeper than %d levels", maxDepth))
	}
	if p.pos >= len(p.data) {
		return node{}, p.fail("Expecting value")
	}
	start := p.pos
	switch c := p.data[p.pos]; {
	case c == '{':
		return p.object(depth)
	case c == '[':
		return p.array(depth)
	case c == '"':
		if err := p.str(); err != nil {
			return node{}, err
		}
		return node{kind: kindString, raw: p.data[start:p.pos]}, nil
	case c == 't' && p.word("true"), c == 'f' && p.word("false"):
		return node{kind: kindBool, raw: p.data[start:p.pos]}, nil
	case c == 'n' && p.word("null"):
		return node{kind: kindNull, raw: p.data[start:p.pos]}, nil
	case c == 'N' && p.word("NaN"), c == 'I' && p.word("Infinity"), c == '-' && p.word("-Infinity"):
		return p.noteBad(node{kind: kindNonFinite, raw: p.data[start:p.pos]}), nil
	case c == '-' || c >= '0' && c <= '9':
		if err := p.number(); err != nil {
			return node{}, err
		}
		n := node{kind: kindNumber, raw: p.data[start:p.pos]}
		if !finite(n.raw) {
			p.noteBad(n)
		}
		return n, nil
	}
	return node{}, p.fail("Expecting value")
}

func (p *parser) noteBad(n node) node {
	if p.bad == nil {
		p.bad = &n
	}
	return n
}

func (p *parser) word(w string) bool {
	if len(p.data)-p.pos < len(w) || string(p.data[p.pos:p.pos+len(w)]) != w {
		return false
	}
	p.pos += len(w)
	return true
}

func (p *parser) digits() bool {
	from := p.pos
	for p.pos < len(p.data) && p.data[p.pos] >= '0' && p.data[p.pos] <= '9' {
		p.pos++
	}
	return p.pos > from
}

func (p *parser) at(c byte) bool { return p.pos < len(p.data) && p.data[p.pos] == c }

func (p *parser) number() error {
	if p.at('-') {
		p.pos++
	}
	if p.at('0') {
		p.pos++
	} else if !p.digits() {
		return p.fail("Expecting value")
	}
	if p.at('.') {
		p.pos++
		if !p.digits() {
			return p.fail("a number needs a digit after its point")
		}
	}
	if p.at('e') || p.at('E') {
		p.pos++
		if p.at('+') || p.at('-') {
			p.pos++
		}
		if !p.digits() {
			return p.fail("a number needs a digit in its exponent")
		}
	}
	return nil
}

// str moves past a string. Bytes above 0x7f are checked for the whole body at once, see Parse.
func (p *parser) str() error {
	start := p.pos
	p.pos++
	for p.pos < len(p.data) {
		switch c := p.data[p.pos]; {
		case c == '"':
			p.pos++
			return nil
		case c < 0x20:
			return p.fail("Invalid control character at")
		case c == '\\':
			if err := p.escape(); err != nil {
				return err
			}
		default:
			p.pos++
		}
	}
	p.pos = start
	return p.fail("Unterminated string starting at")
}

func (p *parser) escape() error {
	if p.pos+1 >= len(p.data) {
		return p.fail("Unterminated string starting at")
	}
	switch p.data[p.pos+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		p.pos += 2
		return nil
	case 'u':
		if p.pos+6 > len(p.data) {
			return p.fail("Invalid \\uXXXX escape")
		}
		for _, c := range p.data[p.pos+2 : p.pos+6] {
			if hexValue(c) < 0 {
				return p.fail("Invalid \\uXXXX escape")
			}
		}
		p.pos += 6
		return nil
	}
	return p.fail("Invalid \\escape")
}

func hexValue(c byte) rune {
	switch {
	case c >= '0' && c <= '9':
		return rune(c - '0')
	case c >= 'a' && c <= 'f':
		return rune(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return rune(c-'A') + 10
	}
	return -1
}

func (p *parser) array(depth int) (node, error) {
	start := p.pos
	p.pos++
	count := 0
	p.space()
	if p.at(']') {
		p.pos++
		return node{kind: kindArray, raw: p.data[start:p.pos]}, nil
	}
	for {
		if _, err := p.value(depth + 1); err != nil {
			return node{}, err
		}
		count++
		p.space()
		if p.at(']') {
			p.pos++
			return node{kind: kindArray, raw: p.data[start:p.pos], n: count}, nil
		}
		if !p.at(',') {
			return node{}, p.fail("Expecting ',' delimiter")
		}
		p.pos++
		p.space()
	}
}

func (p *parser) object(depth int) (node, error) {
	start := p.pos
	p.pos++
	n := node{kind: kindObject}
	p.space()
	if p.at('}') {
		p.pos++
		n.raw = p.data[start:p.pos]
		return n, nil
	}
	for {
		if !p.at('"') {
			return node{}, p.fail("Expecting property name enclosed in double quotes")
		}
		if err := p.str(); err != nil {
			return node{}, err
		}
		p.space()
		if !p.at(':') {
			return node{}, p.fail("Expecting ':' delimiter")
		}
		p.pos++
		p.space()
		if _, err := p.value(depth + 1); err != nil {
			return node{}, err
		}
		n.n++
		p.space()
		if p.at('}') {
			p.pos++
			n.raw = p.data[start:p.pos]
			return n, nil
		}
		if !p.at(',') {
			return node{}, p.fail("Expecting ',' delimiter")
		}
		p.pos++
		p.space()
	}
}

// unquote decodes a string that str has accepted. A lone surrogate becomes the replacement character.
func unquote(raw []byte) string {
	body := raw[1 : len(raw)-1]
	plain := true
	for _, c := range body {
		if c == '\\' {
			plain = false
			break
		}
	}
	if plain {
		return string(body)
	}
	out := make([]byte, 0, len(body))
	for i := 0; i < len(body); i++ {
		if body[i] != '\\' {
			out = append(out, body[i])
			continue
		}
		i++
		switch body[i] {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r := hexRune(body[i+1:])
			i += 4
			if r >= 0xd800 && r < 0xdc00 && i+6 < len(body) && body[i+1] == '\\' && body[i+2] == 'u' {
				if low := hexRune(body[i+3:]); low >= 0xdc00 && low < 0xe000 {
					r = 0x10000 + (r-0xd800)<<10 + (low - 0xdc00)
					i += 6
				}
			}
			out = utf8.AppendRune(out, r)
		default:
			out = append(out, body[i])
		}
	}
	return string(out)
}

func hexRune(b []byte) rune {
	return hexValue(b[0])<<12 | hexValue(b[1])<<8 | hexValue(b[2])<<4 | hexValue(b[3])
}
