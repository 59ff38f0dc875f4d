package schema

import (
	"slices"
	"strings"
)

// Arguments are the words of a command line that give the recipe its values again: --var, --var-file and --set. What
// the environment gives stays with the environment; the value of a sensitive variable is written as "…".
func (r *Recipe) Arguments() []string {
	var words []string
	for _, v := range r.Variables {
		switch {
		case !v.Given() || slices.Contains(r.VarFiles, v.Source):
		case strings.HasPrefix(v.Source, "RECIPE_VAR_") && !v.stored:
		case v.Sensitive || v.Value.ContainsMarked():
			words = append(words, "--var", v.Name+"=…")
		default: // a --var, or a value of a saved plan, whose file may be another one now
			words = append(words, "--var", v.Name+"="+v.Argument())
		}
	}
	for _, file := range r.VarFiles {
		words = append(words, "--var-file", file)
	}
	for _, s := range r.Settings {
		words = append(words, "--set", s.String())
	}
	return words
}
