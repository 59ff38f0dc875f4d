package python

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"

	"github.com/recipe-rl/recipe/engine/trust"
	"github.com/recipe-rl/recipe/sdk/interpreter"
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
// take packages from. Empty: there is none. root is the top of the checkout.
func Configuration(dir, root string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	for ; trust.Below(dir, root); dir = filepath.Dir(dir) {
		if path := filepath.Join(dir, "uv.toml"); exists(path) {
			return path
		}
		path := filepath.Join(dir, "pyproject.toml")
		if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte("uv")) {
			return path
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	return ""
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }
