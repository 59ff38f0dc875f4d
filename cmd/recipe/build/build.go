// Package build says which build of recipe this is.
package build

import (
	"runtime"
	"runtime/debug"
)

// version and commit are set by `go build -ldflags "-X …"`; see the Makefile.
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

// Read returns this build's identity: from the linker's flags, else from what the Go toolchain recorded.
func Read() Info {
	info := Info{Version: version, Commit: commit, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if info.Commit == "" || info.Version == "" {
		module, vcs := recorded()
		if info.Version == "" {
			info.Version = module
		}
		if info.Commit == "" {
			info.Commit = vcs
		}
	}
	return info
}

// recorded reads what `go build` and `go install module@version` leave in the binary.
func recorded() (module, vcs string) {
	module, vcs = "0.1.0-dev", "unknown"
	bi, ok := debug.ReadBuildInfo()
	if !ok {
		return module, vcs
	}
	if v := bi.Main.Version; v != "" && v != "(devel)" {
		module = v
	}
	var revision, dirty string
	for _, s := range bi.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if len(revision) > 12 {
		revision = revision[:12]
	}
	if revision != "" {
		vcs = revision + dirty
	}
	return module, vcs
}
