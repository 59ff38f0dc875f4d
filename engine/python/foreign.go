package python

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/recipe-rl/recipe/engine/trust"
	"github.com/recipe-rl/recipe/schema"
)

// Foreign reports whether the interpreter at path, of a block of the recipe in dir, is one that the recipe brings: it
// names its path or its virtual environment, or it leads into the recipe's folder. Such a one is run by a plan only
// where it is trusted. One of the system, or in PATH, is the user's.
func Foreign(b *schema.Block, path, dir string) (trust.Use, bool) {
	use := trust.Use{Path: path, Why: "used as the Python of " + b.Addr.String()}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		real = path
	}
	if venv := isVenv(path); !trust.Below(real, dir) && (!namedBy(b, path) || !venv && ofSystem(real)) {
		if NamesPackages(b, path) {
			return ofPackages(b, path), true
		}
		return use, false
	} else if !venv {
		// Of a virtual environment no digest says what its packages are.
		use.Digest, _ = trust.OfFile(path) // one that cannot be read is not trusted
	}
	return use, true
}

// namedBy reports whether a block names an interpreter, or has one found by a variable that it sets.
func namedBy(b *schema.Block, path string) bool {
	if r := b.Meta.Runtime; r != nil && (strings.ContainsRune(r.Python, filepath.Separator) || r.Venv != "") {
		return true
	}
	_, sets := b.Meta.Environment["VIRTUAL_ENV"]
	return sets && filepath.Dir(filepath.Dir(path)) != os.Getenv("VIRTUAL_ENV")
}

func isVenv(python string) bool {
	_, err := os.Stat(filepath.Join(filepath.Dir(filepath.Dir(python)), "pyvenv.cfg"))
	return !errors.Is(err, fs.ErrNotExist)
}

// ofSystem reports whether a file belongs to the system, where only root puts something.
func ofSystem(path string) bool {
	for _, root := range []string{"/usr/", "/bin/", "/opt/homebrew/", "/nix/store/"} {
		if strings.HasPrefix(path, root) {
			return true
		}
	}
	return false
}
