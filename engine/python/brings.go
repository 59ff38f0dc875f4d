package python

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"

	"github.com/recipe-rl/recipe/engine/trust"
	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
)

// Brings are what making an environment would run of a recipe's: an interpreter at a path, and packages that are built
// where they lie or that come from an address. Packages of an index are not among them. dir is the recipe's folder.
func Brings(e interpreter.Environment, dir string) (uses []trust.Use, err error) {
	if strings.ContainsRune(e.Python, filepath.Separator) {
		real, err := filepath.EvalSymlinks(e.Python)
		if err != nil {
			return nil, err
		}
		if trust.Below(real, dir) || !ofSystem(real) {
			digest, err := trust.OfFile(e.Python)
			if err != nil {
				return nil, err
			}
			uses = append(uses, trust.Use{Path: e.Python, Digest: digest, Why: "used to make a Python environment"})
		}
	}
	for _, r := range e.Packages.Requirements {
		what, editable := interpreter.Editable(r)
		if !editable {
			what = r
		}
		if !strings.Contains(what, "://") && interpreter.CheckIndexed(r) == nil {
			continue
		}
		use := trust.Use{Path: what, Why: "installed as a Python package, whose build runs code of it"}
		if !strings.Contains(what, "://") {
			path, _, _ := strings.Cut(strings.TrimPrefix(what, "file:"), "[")
			use.Path = interpreter.Absolute(strings.TrimSpace(path), dir)
		}
		if !editable { // an editable package is what lies there later, too
			key, err := interpreter.Keyed(r, dir)
			if err != nil {
				return nil, err
			}
			sum := sha256.Sum256([]byte("requirement " + key))
			use.Digest = "sha256:" + hex.EncodeToString(sum[:])
		}
		uses = append(uses, use)
	}
	return uses, nil
}

// Configuration is the file of a recipe's checkout that uv would read as its configuration: it may name other places to
// take packages from. Empty: there is none. root is the top of the checkout, own a file that is trusted already.
func Configuration(dir, root, own string) string {
	return above(dir, root, func(dir string) string {
		if path := filepath.Join(dir, "uv.toml"); exists(path) {
			return path
		}
		if path := filepath.Join(dir, "pyproject.toml"); path != own && mentions(path, "uv") {
			return path
		}
		return ""
	})
}

// Workspace is the file of a checkout by which uv may take the project in dir for a part of another one, whose lock
// then counts in place of its own. Empty: there is none.
func Workspace(dir, root string) string {
	return above(filepath.Dir(dir), root, func(dir string) string {
		if path := filepath.Join(dir, "pyproject.toml"); mentions(path, "workspace") {
			return path
		}
		return ""
	})
}

// above is the first answer of look that is not empty, for a folder and those above it up to root.
func above(dir, root string, look func(dir string) string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	for ; trust.Below(dir, root); dir = filepath.Dir(dir) {
		if path := look(dir); path != "" {
			return path
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	return ""
}

// maxText bounds a file that is looked into.
const maxText = 64 << 20

func mentions(path, word string) bool {
	text, err := regular.FollowFile(path, maxText)
	return err == nil && bytes.Contains(text, []byte(word))
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }
