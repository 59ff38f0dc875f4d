package parse

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// FindFile returns the recipe file at path: the file itself, or the only one in a folder.
func FindFile(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("there is no recipe at %s: expected a .hcl file or a folder with one", path)
	case err != nil:
		return "", fmt.Errorf("look for a recipe at %s: %w", path, err)
	}
	if !info.IsDir() {
		return path, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return "", fmt.Errorf("read the folder %s: %w", path, err)
	}
	var found []string
	for _, e := range entries {
		if !e.IsDir() && IsRecipeFile(e.Name()) {
			found = append(found, e.Name())
		}
	}
	switch len(found) {
	case 1:
		return filepath.Join(path, found[0]), nil
	case 0:
		return "", fmt.Errorf("the folder %s contains no recipe: expected one .hcl file", path)
	}
	return "", fmt.Errorf("the folder %s contains several recipes (%s): name one of them", path, strings.Join(found, ", "))
}

// LockFile is the file beside a recipe's that holds which packages of plugins it uses.
func LockFile(recipe string) string { return strings.TrimSuffix(recipe, ".hcl") + ".lock.hcl" }

// PolicySuffix ends the names of files with conditions about plans.
const PolicySuffix = ".policy.hcl"

// IsRecipeFile distinguishes recipes from lock files, variable files, tests, policies and hidden files, which also end
// in .hcl.
func IsRecipeFile(name string) bool {
	if !strings.HasSuffix(name, ".hcl") || strings.HasPrefix(name, ".") {
		return false
	}
	for _, other := range []string{".lock.hcl", ".vars.hcl", ".test.hcl", PolicySuffix} {
		if strings.HasSuffix(name, other) {
			return false
		}
	}
	return true
}
