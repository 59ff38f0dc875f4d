package engine

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Args collects a command line; each method leaves out what was not set.
type Args []string

// Add appends arguments as they stand.
func (a *Args) Add(args ...string) { *a = append(*a, args...) }

// Text appends a name and its value unless the value is empty.
func (a *Args) Text(name, value string) {
	if value != "" {
		a.Add(name, value)
	}
}

// Number appends a name and its value if that is above 0.
func (a *Args) Number(name string, value int64) { a.Above(name, value, 0) }

// Above appends a name and its value if that is above a limit.
func (a *Args) Above(name string, value, limit int64) {
	if value > limit {
		a.Add(name, strconv.FormatInt(value, 10))
	}
}

// Flag appends a name if it is on.
func (a *Args) Flag(name string, on bool) {
	if on {
		a.Add(name)
	}
}

// Toggle appends the name for on or for off, and nothing if neither was said.
func (a *Args) Toggle(on, off string, value *bool) {
	switch {
	case value == nil:
	case *value:
		a.Add(on)
	default:
		a.Add(off)
	}
}

// LookupEnv finds a variable in env, then in base.
func LookupEnv(base []string, env map[string]string, name string) string {
	if v, ok := env[name]; ok {
		return v
	}
	for _, entry := range slices.Backward(base) {
		if v, ok := strings.CutPrefix(entry, name+"="); ok {
			return v
		}
	}
	return ""
}

// MergeEnv replaces in base the variables that env names, and sorts what it adds.
func MergeEnv(base []string, env map[string]string) []string {
	out := make([]string, 0, len(base)+len(env))
	for _, entry := range base {
		name, _, _ := strings.Cut(entry, "=")
		if _, replaced := env[name]; !replaced {
			out = append(out, entry)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out = append(out, name+"="+env[name])
	}
	return out
}

// IsPath tells a local folder from a hub name: "./model", "../m", "/models/m" and "~/m" are paths, "org/model" is a
// name.
func IsPath(model string) bool {
	return strings.HasPrefix(model, ".") || strings.HasPrefix(model, "/") || strings.HasPrefix(model, "~")
}

// ResolvePath makes a local model's path absolute; hub names stay.
func ResolvePath(model, recipeDir string) string {
	switch {
	case !IsPath(model):
		return model
	case strings.HasPrefix(model, "~/"):
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, model[2:])
		}
		return model
	case filepath.IsAbs(model):
		return filepath.Clean(model)
	default:
		return filepath.Join(recipeDir, model)
	}
}
