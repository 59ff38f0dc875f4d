package group

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unsafe"
)

// The functions of this file read one value each and append its canonical form to dst. They apply the conversions that
// pydantic applies in its lax mode and use its messages.

func (c *complaints) integer(dst []byte, n *node, at *path) []byte {
	switch n.kind {
	case kindBool:
		if n.raw[0] == 't' {
			return append(dst, '1')
		}
		return append(dst, '0')
	case kindNumber:
		if !bytes.ContainsAny(n.raw, ".eE") {
			return append(dst, n.raw...)
		}
		f, err := strconv.ParseFloat(string(n.raw), 64)
		if err != nil || math.IsInf(f, 0) {
			c.add(at, "finite_number", "Input should be a finite number", n, nil)
			return dst
		}
		if f != math.Trunc(f) {
			c.add(at, "int_from_float", "Input should be a valid integer, got a number with a fractional part", n, nil)
			return dst
		}
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	case kindNonFinite:
		c.add(at, "finite_number", "Input should be a finite number", n, nil)
		return dst
	case kindString:
		if digits, ok := integerText(unquote(n.raw)); ok {
			return append(dst, digits...)
		}
		c.add(at, "int_parsing", "Input should be a valid integer, unable to parse string as an integer", n, nil)
		return dst
	}
	c.add(at, "int_type", "Input should be a valid integer", n, nil)
	return dst
}

// The range of the integers of a group: what the int32 of trainers and columns holds.
const (
	minInteger = math.MinInt32
	maxInteger = math.MaxInt32
)

// integerFrom reads an integer between least and the largest that an int32 holds. run-api takes integers of any size,
// and every reader of such a group fails.
func integerFrom(least int64) leaf {
	return func(c *complaints, dst []byte, n *node, at *path) []byte {
		from := len(dst)
		if dst = c.integer(dst, n, at); len(dst) == from {
			return dst // already reported
		}
		v, err := strconv.ParseInt(unsafe.String(&dst[from], len(dst)-from), 10, 64)
		negative := dst[from] == '-'
		switch {
		case err != nil && !negative || v > maxInteger:
			c.add(
				at,
				"less_than_equal",
				fmt.Sprintf("Input should be less than or equal to %d: trainers keep it in 32 bits", maxInteger),
				n,
				map[string]any{"le": maxInteger},
			)
		case err != nil || v < least:
			c.add(
				at,
				"greater_than_equal",
				fmt.Sprintf("Input should be greater than or equal to %d", least),
				n,
				map[string]any{"ge": least},
			)
		}
		return dst
	}
}

// integerText converts what pydantic accepts as an integer in a string ("+7", " 7 ", "7.0", "1_000") into JSON.
func integerText(s string) (string, bool) {
	s = strings.TrimSpace(s)
	negative := strings.HasPrefix(s, "-")
	s = strings.TrimPrefix(strings.TrimPrefix(s, "-"), "+")
	if whole, fraction, found := strings.Cut(s, "."); found {
		if strings.Trim(fraction, "0") != "" {
			return "", false
		}
		s = whole
	}
	if s == "" || s[0] == '_' || s[len(s)-1] == '_' || strings.Contains(s, "__") {
		return "", false
	}
	s = strings.ReplaceAll(s, "_", "")
	if strings.Trim(s, "0123456789") != "" {
		return "", false
	}
	if s = strings.TrimLeft(s, "0"); s == "" {
		return "0", true
	}
	if negative {
		s = "-" + s
	}
	return s, true
}

// float appends a number. Whole numbers keep their text: clients read both.
func (c *complaints) float(dst []byte, n *node, at *path) []byte {
	switch n.kind {
	case kindBool:
		if n.raw[0] == 't' {
			return append(dst, "1.0"...)
		}
		return append(dst, "0.0"...)
	case kindNumber:
		if !finite(n.raw) {
			c.add(at, "finite_number", "Input should be a finite number", n, nil)
			return dst
		}
		c.fitsFloat32(n.raw, n, at)
		return append(dst, n.raw...)
	case kindNonFinite:
		c.add(at, "finite_number", "Input should be a finite number", n, nil)
		return dst
	case kindString:
		f, err := strconv.ParseFloat(strings.TrimSpace(unquote(n.raw)), 64)
		if err != nil {
			c.add(at, "float_parsing", "Input should be a valid number, unable to parse string as a number", n, nil)
			return dst
		}
		if math.IsInf(f, 0) || math.IsNaN(f) {
			c.add(at, "finite_number", "Input should be a finite number", n, nil)
			return dst
		}
		from := len(dst)
		dst = strconv.AppendFloat(dst, f, 'g', -1, 64)
		c.fitsFloat32(dst[from:], n, at)
		return dst
	}
	c.add(at, "float_type", "Input should be a valid number", n, nil)
	return dst
}

// MaxScore bounds the size of a score. Trainers add up squares of scores in single precision, which ends at 3.4e38.
const MaxScore = 1e15

// score appends a score.
func (c *complaints) score(dst []byte, n *node, at *path) []byte {
	from, before := len(dst), len(c.details)
	dst = c.float(dst, n, at)
	if len(c.details) > before || !mayExceedMaxScore(dst[from:]) {
		return dst
	}
	if f, err := strconv.ParseFloat(string(dst[from:]), 64); err == nil && math.Abs(f) > MaxScore {
		c.add(at, "finite_number", "Input should be between -1e15 and 1e15: trainers add up squares of scores in single "+
			"precision", n, nil)
	}
	return dst
}

// mayExceedMaxScore reports whether one of the numbers in a text has an exponent that makes it larger, or more digits
// before its point than MaxScore allows.
func mayExceedMaxScore(text []byte) bool {
	digits, fraction := 0, false
	for i, b := range text {
		switch {
		case b == 'e' || b == 'E':
			if i+1 == len(text) || text[i+1] != '-' {
				return true
			}
		case b == '-' && i > 0 && text[i-1]|0x20 == 'e':
			fraction = true // what follows makes it smaller
		case b == '.':
			fraction = true
		case b-'0' > 9:
			digits, fraction = 0, false
		case !fraction:
			if digits++; digits > 15 {
				return true
			}
		}
	}
	return false
}

// fitsFloat32 complains about a number that is infinite in a trainer, which calculates in single precision.
func (c *complaints) fitsFloat32(text []byte, n *node, at *path) {
	if len(text) < 38 && !bytes.ContainsAny(text, "eE") {
		return
	}
	if f, err := strconv.ParseFloat(string(text), 64); err == nil && math.Abs(f) > math.MaxFloat32 {
		c.add(
			at,
			"finite_number",
			"Input should be a finite number in single precision, in which trainers calculate: at most 3.4e38",
			n,
			nil,
		)
	}
}

// finite reports whether a JSON number fits a float64. Without an exponent it takes 309 digits to overflow.
func finite(number []byte) bool {
	if len(number) < 300 && !bytes.ContainsAny(number, "eE") {
		return true
	}
	f, err := strconv.ParseFloat(string(number), 64)
	return err == nil && !math.IsInf(f, 0)
}

// leaf reads one value below a list.
type leaf func(c *complaints, dst []byte, n *node, at *path) []byte

// list reads an array with the given reader for its elements.
func list(element leaf) leaf {
	return func(c *complaints, dst []byte, n *node, at *path) []byte {
		if n.kind != kindArray {
			c.add(at, "list_type", "Input should be a valid list", n, nil)
			return dst
		}
		dst = append(dst, '[')
		here := &path{parent: at} // the same for all elements: there may be millions
		n.elements(func(i int, value node) bool {
			if i > 0 {
				dst = append(dst, ',')
			}
			here.index = i
			dst = element(c, dst, &value, here)
			return len(c.details) < maxDetails
		})
		return append(dst, ']')
	}
}

func (c *complaints) object(dst []byte, n *node, at *path) []byte {
	if n.kind != kindObject {
		c.add(at, "dict_type", "Input should be a valid dictionary", n, nil)
		return dst
	}
	return c.anything(dst, n, at)
}

// anything passes a value on unchanged, except numbers that JSON cannot represent.
func (c *complaints) anything(dst []byte, n *node, at *path) []byte {
	if bad := nonFinite(n); bad != nil {
		c.add(at, "finite_number", "Input should be a finite number", bad, nil)
		return dst
	}
	return append(dst, n.raw...)
}

// nonFinite finds the first number inside a value that JSON or a double cannot hold.
func nonFinite(n *node) *node {
	p := parser{data: n.raw}
	_, _ = p.value(0) // it has been read before
	return p.bad
}

// messages checks conversations: lists of objects with a role and a content, whatever else they carry.
func (c *complaints) messages(dst []byte, n *node, at *path) []byte {
	whole := true
	n.elements(func(_ int, conversation node) bool {
		conversation.elements(func(_ int, m node) bool {
			if m.kind == kindObject && (m.get("role") == nil || m.get("content") == nil) {
				c.add(at, "value_error", "Value error, Message must have 'role' and 'content' fields", &m, nil)
				whole = false
			}
			return whole
		})
		return whole
	})
	if !whole {
		return dst
	}
	return list(list((*complaints).object))(c, dst, n, at)
}

// version reads policy_version: one version, or the range [oldest, newest] of the versions that sampled the tokens.
func (c *complaints) version(dst []byte, n *node, at *path) []byte {
	values := []node{*n}
	if n.kind == kindArray {
		values = nil
		n.elements(func(i int, value node) bool {
			values = append(values, value)
			return i < 2
		})
	}
	previous := int64(0)
	for i := range values {
		v, err := strconv.ParseInt(string(values[i].raw), 10, 64)
		if err != nil || v < previous || len(values) > 2 {
			c.add(
				at,
				"value_error",
				"Value error, policy_version must be an integer of 0 or more, or a range [oldest, newest] of two",
				n,
				nil,
			)
			return dst
		}
		previous = v
	}
	if len(values) == 0 {
		c.add(at, "value_error", "Value error, policy_version must not be an empty list", n, nil)
		return dst
	}
	return append(dst, n.raw...)
}
