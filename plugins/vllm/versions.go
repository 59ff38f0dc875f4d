package vllm

import (
	"fmt"
	"strconv"
	"strings"
)

// The versions of vLLM that this plugin is run with: oldest is what a machine with a GPU gets and what ran on an
// H200, newest is what a machine without one gets and what the tests run. Everything that names a supported version
// takes it from here; TestSupportedVersionsAreStatedOnce holds the documentation and the Python side to it.
const (
	oldestVersion = "0.24.0"
	newestVersion = "0.32.0"
)

// versionWarning says what is odd about a server's version; empty: nothing.
func versionWarning(version string) string {
	got, ok := release(version)
	oldest, _ := release(oldestVersion)
	newest, _ := release(newestVersion)
	switch {
	case !ok:
		return ""
	case got < oldest:
		return fmt.Sprintf("vLLM %s is older than %s, the oldest version that this plugin is run with; if "+
			"something fails, update it",
			version, oldestVersion)
	case got > newest:
		return fmt.Sprintf("vLLM %s is newer than %s, the newest version that this plugin is run with", version,
			newestVersion)
	}
	return ""
}

// release makes a number of the first two parts of a version, which is where vLLM changes what it offers.
func release(version string) (int, bool) {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 2 {
		return 0, false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return major*1000 + minor, err1 == nil && err2 == nil
}
