package spec

import (
	"maps"
	"slices"

	"github.com/zclconf/go-cty/cty"
)

// Idle returns a warning, with the reason, for each attribute without an effect: those set to true in set. A plugin's
// Validate or Plan returns it, so that nothing is taken and ignored in silence.
func Idle(why string, set map[string]bool) []Problem {
	var problems []Problem
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if set[name] {
			problems = append(problems, Problem{Path: cty.GetAttrPath(name), Warning: true,
				Summary: name + " has no effect", Detail: why})
		}
	}
	return problems
}
