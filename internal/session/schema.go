package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Limits of a schema that an engine compiles before it samples: the end of a request does not stop that, and it takes a
// processor of the engine. With xgrammar 0.2.8, texts and patterns of some 20,000 repetitions take about a second,
// nested schemas much more than their length.
const (
	maxSchemaBytes   = 128 << 10
	maxSchemaValues  = 4096
	maxSchemaDepth   = 64
	maxSchemaRepeats = 20_000
)

// compilable refuses a schema whose compilation would keep an engine busy.
func compilable(raw json.RawMessage) error {
	if len(raw) > maxSchemaBytes {
		return fmt.Errorf("a session has an engine compile schemas of at most %d bytes, got %d", maxSchemaBytes, len(raw))
	}
	var root any
	if err := json.Unmarshal(raw, &root); err != nil {
		return fmt.Errorf("want a schema: %w", err)
	}
	var c schemaCost
	c.add(root, 1)
	switch {
	case c.deepest > maxSchemaDepth:
		return fmt.Errorf("a session has an engine compile schemas of at most %d lists and objects within each other, got %d",
			maxSchemaDepth, c.deepest)
	case c.values > maxSchemaValues:
		return fmt.Errorf("a session has an engine compile schemas of at most %d values, got %d", maxSchemaValues, c.values)
	case c.repeats > maxSchemaRepeats:
		return fmt.Errorf("a session has an engine compile schemas with lengths (minLength, maxItems and the like) and "+
			"repetitions in patterns of at most %d altogether, got %.4g: leave out those that need not be exact",
			maxSchemaRepeats, c.repeats)
	}
	return nil
}

// schemaCost is what compiling a schema takes, about.
type schemaCost struct {
	values, deepest int
	repeats         float64 // of characters, items and properties
}

func (c *schemaCost) add(v any, depth int) {
	c.values++
	switch v := v.(type) {
	case []any:
		c.deepest = max(c.deepest, depth)
		for _, inner := range v {
			c.add(inner, depth+1)
		}
	case map[string]any:
		c.deepest = max(c.deepest, depth)
		for key, inner := range v {
			c.member(key, inner)
			c.add(inner, depth+1)
		}
	}
}

// member adds the repetitions that a member of a schema asks for.
func (c *schemaCost) member(key string, v any) {
	switch v := v.(type) {
	case float64:
		switch key {
		case "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains":
			c.repeats += max(v, 0)
		}
	case string:
		if key == "pattern" {
			c.repeats += patternCost(v)
		}
	case map[string]any:
		if key == "patternProperties" {
			for pattern := range v {
				c.repeats += patternCost(pattern)
			}
		}
	}
}

// patternCost is how many characters a regular expression has when its counted repetitions are written out.
func patternCost(pattern string) float64 {
	type group struct{ before, last float64 } // last: what a repetition would repeat
	open := []group{{}}
	atom := func(cost float64) {
		g := &open[len(open)-1]
		g.before, g.last = g.before+g.last, cost
	}
	closed := func() {
		g := open[len(open)-1]
		open = open[:len(open)-1]
		atom(g.before + g.last)
	}
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '\\':
			i++
			atom(1)
		case c == '[':
			i = classEnd(pattern, i)
			atom(1)
		case c == '(':
			open = append(open, group{})
		case c == ')' && len(open) > 1:
			closed()
		case c == '{':
			if times, length := repetition(pattern[i:]); length > 0 {
				open[len(open)-1].last *= times
				i += length - 1
				continue
			}
			atom(1)
		default:
			atom(1)
		}
	}
	for len(open) > 1 {
		closed()
	}
	return open[0].before + open[0].last
}

// classEnd is where the bracket stands that ends a class of characters.
func classEnd(pattern string, i int) int {
	for i++; i < len(pattern) && pattern[i] != ']'; i++ {
		if pattern[i] == '\\' {
			i++
		}
	}
	return i
}

// repetition reads {3}, {3,} or {3,5} at the beginning of a text; length is 0 where there is none.
func repetition(text string) (times float64, length int) {
	inside, _, ok := strings.Cut(text[1:], "}")
	if !ok {
		return 0, 0
	}
	for _, bound := range strings.SplitN(inside, ",", 2) {
		if bound = strings.TrimSpace(bound); bound == "" {
			continue
		}
		n, err := strconv.ParseUint(bound, 10, 64) // beyond the range: the largest
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return 0, 0
		}
		times = max(times, float64(n))
	}
	return max(times, 1), len(inside) + 2
}
