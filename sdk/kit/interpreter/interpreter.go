// Package interpreter finds the Python that a block's program runs in.
package interpreter

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
)

// Find returns the absolute path of the interpreter of a block: that of the environment which `recipe init` has made
// for runtime.requirements, else runtime.python, else that of runtime.venv, else the one of an activated virtual
// environment (VIRTUAL_ENV), else the one made for the plugin's own packages, else python3 in PATH. Relative paths
// count from recipeDir. A symbolic link is not followed: a virtual environment's python is one, and is found by where
// it lies. The error is an *sdk.Error that says where it looked.
func Find(r sdk.Runtime, plugin sdk.Packages, recipeDir string, getenv func(string) string) (string, error) {
	prepared, managed, err := Of(r, plugin, recipeDir)
	switch {
	case err != nil:
		return "", err
	case len(r.Requirements) > 0 && managed:
		if prepared.Ready() {
			return prepared.Executable(), nil
		}
		return "", &sdk.Error{
			Summary: "the block's Python environment has not been prepared, or a package in a local folder has changed since",
			Detail:  "runtime.requirements = " + strings.Join(r.Requirements, ", "),
			Remedy:  "run recipe init, which makes it; or set runtime { python = … } to an interpreter that has these packages",
			Path:    requirements(),
		}
	case r.Python != "":
		return named(r.Python, recipeDir)
	case r.Venv != "":
		return inVenv(Absolute(r.Venv, recipeDir), "runtime.venv")
	case getenv("VIRTUAL_ENV") != "":
		return inVenv(getenv("VIRTUAL_ENV"), "VIRTUAL_ENV")
	case managed && prepared.Ready():
		return prepared.Executable(), nil
	case managed && (prepared.Packages.Project != "" || prepared.Packages.Locked()):
		return "", &sdk.Error{
			Summary: "its Python environment has not been prepared, or the packages that it asks for have changed since",
			Detail:  prepared.Packages.Project,
			Remedy:  "run recipe init, which makes it",
		}
	default:
		path, err := exec.LookPath("python3")
		if err != nil {
			return "", missing("python3 is not in PATH", "", err)
		}
		return filepath.Abs(path)
	}
}

func named(python, recipeDir string) (string, error) {
	if !strings.ContainsRune(python, filepath.Separator) {
		path, err := exec.LookPath(python)
		if err != nil {
			return "", missing(fmt.Sprintf("runtime.python = %q is not in PATH", python), "python", err)
		}
		return filepath.Abs(path)
	}
	path := Absolute(python, recipeDir)
	if err := executable(path); err != nil {
		return "", missing(fmt.Sprintf("runtime.python = %q cannot be run", python), "python", err)
	}
	return path, nil
}

func inVenv(dir, origin string) (string, error) {
	path := filepath.Join(dir, "bin", "python")
	if runtime.GOOS == "windows" {
		path = filepath.Join(dir, "Scripts", "python.exe")
	}
	if err := executable(path); err != nil {
		return "", missing(fmt.Sprintf("%s = %q holds no interpreter", origin, dir),
			strings.TrimPrefix(origin, "runtime."), err)
	}
	return path, nil
}

// Absolute returns a path of a recipe: one that is relative counts from base.
func Absolute(path, base string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(base, path)
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return errors.New(path + " is not an executable file")
	}
	return nil
}

func requirements() cty.Path { return cty.GetAttrPath("runtime").GetAttr("requirements") }

// missing reports that there is no interpreter. Setting is the one of the block runtime that names it; empty, or of
// another place: none does.
func missing(summary, setting string, err error) error {
	var path cty.Path
	if setting == "python" || setting == "venv" {
		path = cty.GetAttrPath("runtime").GetAttr(setting)
	}
	return &sdk.Error{
		Summary: summary,
		Remedy:  "run recipe init, which makes an environment; or set runtime { python = \"/path/to/python\" }",
		Path:    path,
		Err:     err,
	}
}
