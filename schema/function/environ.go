package function

import "strings"

// Environ are the entries of an environment (as os.Environ) by name.
func Environ(entries []string) map[string]string {
	out := make(map[string]string, len(entries))
	for _, e := range entries {
		if name, value, ok := strings.Cut(e, "="); ok {
			out[name] = value
		}
	}
	return out
}
