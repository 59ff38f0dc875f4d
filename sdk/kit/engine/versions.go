package engine

import (
	"fmt"
	"strconv"
	"strings"
)

// Versions is the range of versions of an engine that a plugin is run with.
type Versions struct{ Title, Oldest, Newest string }

// Warning describes what is odd about a server's version; empty: nothing, or it is no version.
func (v Versions) Warning(version string) string {
	got, ok := release(version)
	oldest, _ := release(v.Oldest)
	newest, _ := release(v.Newest)
	switch {
	case !ok:
		return ""
	case got < oldest:
		return fmt.Sprintf("%s %s is older than %s, the oldest version that this plugin is run with; if something fails, "+
			"update it", v.Title, version, v.Oldest)
	case got > newest:
		return fmt.Sprintf("%s %s is newer than %s, the newest version that this plugin is run with; it is tried all the "+
			"same: if something fails, install that one", v.Title, version, v.Newest)
	}
	return ""
}

// release makes a number of the first three parts of a version, whatever follows their digits.
func release(version string) (int, bool) {
	number := 0
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 4)
	for i := range 3 {
		digits := ""
		if i < len(parts) {
			digits = parts[i][:len(parts[i])-len(strings.TrimLeft(parts[i], "0123456789"))]
		}
		n, err := strconv.Atoi(digits)
		if err != nil && i < 2 {
			return 0, false
		}
		number = number*1000 + n
	}
	return number, true
}
