package protocol

import (
	"fmt"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
)

var environmentPattern = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*\*?$`)

// CheckEnvironmentNames checks names of variables, of which some may end in *.
func CheckEnvironmentNames(names []string) error {
	for _, name := range names {
		if !environmentPattern.MatchString(name) {
			return fmt.Errorf(
				"%q is not a name of an environment variable; expected one such as HF_TOKEN, or MYTOOL_* for all that "+
					"begin with MYTOOL_", name)
		}
	}
	return nil
}

// MatchesEnvironment reports whether a variable is one of the names, of which some may end in *.
func MatchesEnvironment(variable string, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		prefix, family := strings.CutSuffix(name, "*")
		return name == variable || family && strings.HasPrefix(variable, prefix)
	})
}
