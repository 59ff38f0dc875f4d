package worker

import (
	"slices"
	"strings"
)

// Number is a number of a recipe, whatever form it came in.
func Number(v any) (float64, bool) {
	switch n := v.(type) {
	case float64:
		return n, true
	case int64:
		return float64(n), true
	}
	return 0, false
}

// valueKind is what a value of a recipe is: as a table of settings calls it, and in a sentence.
type valueKind struct{ name, article string }

var kinds = []valueKind{
	{"bool", "true or false"}, {"whole number", "a whole number"}, {"number", "a number"}, {"string", "a string"},
	{"list", "a list"}, {"object", "an object"}, {"null", "null, which is not the same as leaving it out"},
}

func kindOf(value any) valueKind {
	name := "null"
	switch value.(type) {
	case bool:
		name = "bool"
	case int64:
		name = "whole number"
	case float64:
		name = "number"
	case string:
		name = "string"
	case []any:
		name = "list"
	case map[string]any:
		name = "object"
	}
	return kinds[slices.IndexFunc(kinds, func(k valueKind) bool { return k.name == name })]
}

// accepts reports whether a value is of one of the kinds, which a | separates. A whole number is a number, too.
func accepts(allowed string, value any) bool {
	of, list := kindOf(value).name, strings.Split(allowed, "|")
	return slices.Contains(list, of) || of == "whole number" && slices.Contains(list, "number")
}

// words are the kinds in a sentence.
func words(allowed string) string {
	var out []string
	for _, k := range kinds {
		if k.name != "null" && slices.Contains(strings.Split(allowed, "|"), k.name) {
			out = append(out, k.article)
		}
	}
	return strings.Join(out, " or ")
}
