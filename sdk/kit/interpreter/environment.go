package interpreter

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/recipe-rl/recipe/sdk"
)

// stamp is the file that marks an environment as complete. It is written last.
const stamp = "recipe-environment"

// Environment is the place of a set of packages in the user's cache. It is shared by all recipes that ask for the same
// set.
type Environment struct {
	Packages sdk.Packages
	Python   string // interpreter or version it is made with; empty: python3
	Dir      string
	digest   string
}

// Of returns the environment that `recipe init` makes for a block: for its own requirements, else for those of its
// plugin. False: the recipe names an interpreter or a virtual environment, or nothing is needed. Requirements that are
// paths count from recipeDir, and the environment is that of what lies there now. The error is an *sdk.Error that names
// the requirement that cannot be used.
func Of(r sdk.Runtime, plugin sdk.Packages, recipeDir string) (Environment, bool, error) {
	packages := plugin
	switch {
	case len(r.Requirements) > 0 && r.Venv == "":
		packages = sdk.Packages{Requirements: r.Requirements, Supported: plugin.Supported}
	case r.Python != "" || r.Venv != "" || plugin.Empty():
		return Environment{}, false, nil
	}
	e := Environment{Packages: packages, Python: r.Python}
	if strings.ContainsRune(e.Python, filepath.Separator) {
		var err error
		if e.Python, err = filepath.Abs(Absolute(e.Python, recipeDir)); err != nil {
			return Environment{}, false, fmt.Errorf("find runtime.python: %w", err)
		}
	}
	meant := packages
	meant.Requirements = make([]string, len(packages.Requirements))
	for i, requirement := range packages.Requirements {
		var err error
		if meant.Requirements[i], err = keyed(requirement, recipeDir); err != nil {
			return Environment{}, false, err
		}
	}
	if e.digest = meant.Digest(e.Python); packages.Project != "" {
		var err error
		if e.digest, err = LockDigest(packages); err != nil {
			return Environment{}, false, err
		}
		e.digest = e.digest[:16]
	}
	e.Dir = filepath.Join(Cache(), e.digest)
	return e, true, nil
}

// Cache is the folder of all environments.
func Cache() string { return filepath.Join(CacheDir(), "python") }

// Executable is the environment's own interpreter.
func (e Environment) Executable() string { return filepath.Join(e.Dir, "bin", "python") }

// Ready reports whether the environment is complete and can be used.
func (e Environment) Ready() bool {
	data, err := os.ReadFile(filepath.Join(e.Dir, stamp))
	return err == nil && strings.TrimSpace(string(data)) == e.digest && executable(e.Executable()) == nil
}

// Finish marks an environment as complete.
func (e Environment) Finish() error {
	path := filepath.Join(e.Dir, stamp)
	if err := os.WriteFile(path+".new", []byte(e.digest+"\n"), 0o600); err != nil {
		return fmt.Errorf("mark the Python environment as complete: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("mark the Python environment as complete: %w", err)
	}
	return nil
}

// GPU reports whether this machine has an NVIDIA driver, which decides which packages a plugin needs.
func GPU() bool {
	for _, path := range []string{"/dev/nvidiactl", "/proc/driver/nvidia/version"} {
		if _, err := os.Stat(path); err == nil {
			return true
		}
	}
	return false
}
