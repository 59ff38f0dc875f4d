package interpreter

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/recipe-rl/recipe/sdk"
)

// stamp is the file that says that an environment is whole. It is written last.
const stamp = "recipe-environment"

// Environment is the place of a set of packages in the user's cache. It is shared by all recipes that ask for the same set.
type Environment struct {
	Packages sdk.Packages
	Python   string // interpreter or version it is made with; empty: python3
	Dir      string
}

// Of returns the environment that `recipe init` makes for a block: for its own requirements, else for those of its plugin. False: the
// recipe names an interpreter or a virtual environment, or nothing is needed.
func Of(r sdk.Runtime, plugin sdk.Packages) (Environment, bool) {
	packages := plugin
	switch {
	case len(r.Requirements) > 0 && r.Venv == "":
		packages = sdk.Packages{Requirements: r.Requirements}
	case r.Python != "" || r.Venv != "" || plugin.Empty():
		return Environment{}, false
	}
	return Environment{Packages: packages, Python: r.Python, Dir: filepath.Join(Cache(), packages.Digest(r.Python))}, true
}

// Cache is the folder of all environments: below the user's cache directory, or of the one for temporary files where there is none.
func Cache() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "recipe", "python")
}

// Executable is the environment's own interpreter.
func (e Environment) Executable() string { return filepath.Join(e.Dir, "bin", "python") }

// Ready says whether the environment has been made, whole, and can be used.
func (e Environment) Ready() bool {
	data, err := os.ReadFile(filepath.Join(e.Dir, stamp))
	return err == nil && strings.TrimSpace(string(data)) == e.Packages.Digest(e.Python) && executable(e.Executable()) == nil
}

// Finish marks an environment as whole.
func (e Environment) Finish() error {
	path := filepath.Join(e.Dir, stamp)
	if err := os.WriteFile(path+".new", []byte(e.Packages.Digest(e.Python)+"\n"), 0o600); err != nil {
		return fmt.Errorf("mark the Python environment as whole: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("mark the Python environment as whole: %w", err)
	}
	return nil
}

// GPU says whether this machine has an NVIDIA driver, which decides which packages a plugin needs.
func GPU() bool {
	for _, path := range []string{"/dev/nvidiactl", "/proc/driver/nvidia/version"} {
		if _, err := os.Stat(path); err == nil {
			return true
		}
	}
	return false
}
