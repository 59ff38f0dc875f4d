// Package linked is what `go build -ldflags "-X …"` says of a build. It imports nothing that has to be initialized:
// package early answers with it.
package linked

import "runtime"

// version and commit are set by the linker; see the Makefile. They are empty in a build without it.
var version, commit string

// Info identifies a build.
type Info struct {
	Version string `json:"version"` // release, or 0.1.0-dev for a build without a version
	// of the source, with -dirty when the tree was changed; "unknown" outside a checkout
	Commit string `json:"commit"`
	Go     string `json:"go"` // toolchain that built it
	OS     string `json:"os"`
	Arch   string `json:"arch"`
}

// Read returns what is known of this build without asking what the Go toolchain recorded.
func Read() Info {
	return Info{Version: version, Commit: commit, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
}

// Complete reports that the linker was told all.
func (i Info) Complete() bool { return i.Version != "" && i.Commit != "" }

// String is the line that `recipe version` prints.
func (i Info) String() string {
	return "recipe " + i.Version + " (commit " + i.Commit + ", " + i.Go + ", " + i.OS + "/" + i.Arch + ")"
}
