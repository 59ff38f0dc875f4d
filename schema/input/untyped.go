package input

import (
	"regexp"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// A number that is written as it is printed, so that nothing is lost where it is used as text, or one with a signed
// exponent. 1.10 is a version, 007 a name, and 7e10 a revision of git.
var plainNumber = regexp.MustCompile(`^-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*[1-9])?|[0-9]+(?:\.[0-9]+)?[eE][-+][0-9]+)$`)

// Untyped is the value of text from the command line or the environment where any type is taken. What it replaces says
// whether it is text, a number or a bool. Nothing is computed: 2024-01-01 is text.
func Untyped(raw string, replaced hclsyntax.Expression) cty.Value {
	like := cty.DynamicPseudoType
	if replaced != nil && len(replaced.Variables()) == 0 {
		if v, diags := replaced.Value(nil); !diags.HasErrors() && !v.IsNull() {
			like = v.Type()
		}
	}
	switch {
	case like == cty.String:
	case raw == "true", raw == "false":
		return cty.BoolVal(raw == "true")
	case like == cty.Number, plainNumber.MatchString(raw):
		if v, err := cty.ParseNumberVal(raw); err == nil {
			return v
		}
	}
	return cty.StringVal(raw)
}

// Bracketed says whether text looks like a list, an object, or text in quotes, which are read as expressions also where
// any type is taken.
func Bracketed(raw string) bool {
	raw = strings.TrimSpace(raw)
	return raw != "" && strings.ContainsAny(raw[:1], `[{"`)
}
