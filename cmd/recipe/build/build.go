// Package build says which build of recipe this is.
package build

import (
	"cmp"
	"runtime/debug"

	"github.com/recipe-rl/recipe/cmd/recipe/build/linked"
)

// Info identifies a build.
type Info = linked.Info

// Read returns this build's identity: from the linker's flags, else from what the Go toolchain recorded.
func Read() Info {
	info := linked.Read()
	if info.Complete() {
		return info
	}
	module, vcs := recorded()
	info.Version, info.Commit = cmp.Or(info.Version, module), cmp.Or(info.Commit, vcs)
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
