package diagnostic

import (
	"strconv"
	"strings"

	"github.com/zclconf/go-cty/cty"
)

// Describe describes a value for a message, without showing one that is marked.
func Describe(v cty.Value) string {
	if v.ContainsMarked() {
		return "a sensitive value"
	}
	switch {
	case !v.IsKnown():
		return "a value that is not known yet"
	case v.IsNull():
		return "null"
	case v.Type() == cty.String:
		if s := v.AsString(); len(s) <= 60 {
			return strconv.Quote(s)
		}
		return "a long string"
	case v.Type() == cty.Number:
		return v.AsBigFloat().Text('g', 12)
	case v.Type() == cty.Bool:
		return strconv.FormatBool(v.True())
	}
	return "a value of type " + v.Type().FriendlyName()
}

// LowerFirst is a text that continues a sentence.
func LowerFirst(s string) string {
	if s == "" || s[0] < 'A' || s[0] > 'Z' {
		return s
	}
	return string(s[0]+'a'-'A') + s[1:]
}

// UpperFirst is a text that begins a sentence.
func UpperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
