package python

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/recipe-rl/recipe/engine/trust"
	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
)

// A wheel runs code without being imported: Python runs files *.pth and sitecustomize.py of its packages when it
// starts, and takes its own library from where pyvenv.cfg, which a wheel may replace, says. So a command that is to run
// nothing of the packages that a recipe names starts the interpreter from which their environment was made, without
// site, and looks at the folder of packages from there.

// baseFile is the file of an environment with the path of the interpreter from which it was made. It is written after
// the packages.
const baseFile = "recipe-base"

// withoutSite are the options of an interpreter that runs nothing of any packages.
var withoutSite = []string{isolated, "-S"}

// compile compiles the packages of an environment once: without it each of a server's processes compiles ten thousand
// files at its first start. Uv would start the environment's own interpreter for it.
func compile(ctx context.Context, dir, base string) error {
	folders, err := packageFolders(dir)
	if err != nil {
		return err
	}
	args := slices.Concat(withoutSite, []string{"-m", "compileall", "-qq", "-j", "0"}, folders)
	cmd := exec.CommandContext(ctx, base, args...)
	cmd.Env = interpreter.Asking(os.Environ())
	cmd.WaitDelay = 10 * time.Second
	var failed *exec.ExitError // files that are no Python of this version are usual
	if err := cmd.Run(); err != nil && (ctx.Err() != nil || !errors.As(err, &failed)) {
		return fmt.Errorf("compile the packages of a Python environment: %w", errors.Join(context.Cause(ctx), err))
	}
	if err := renameio.WriteFile(filepath.Join(dir, baseFile), []byte(base+"\n"), 0o600); err != nil {
		return fmt.Errorf("note the interpreter of a Python environment: %w", err)
	}
	return nil
}

// packageFolders are the folders of packages of an environment.
func packageFolders(dir string) ([]string, error) {
	folders, err := filepath.Glob(filepath.Join(escaped(dir), "lib", "python*", "site-packages"))
	if err != nil {
		return nil, fmt.Errorf("look at the Python environment %s: %w", dir, err)
	}
	return folders, nil
}

// escaped is a path as a pattern of filepath.Glob.
func escaped(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// Quiet is how to ask about the packages of a block's Python: a program with its first arguments, and the folders that
// its code adds to sys.path. An environment of packages that the recipe names is asked without running any of them.
// False: it cannot be asked so.
func Quiet(b *schema.Block, python string) (argv, folders []string, ok bool) {
	if !NamesPackages(b, python) {
		return []string{python}, nil, true
	}
	dir := filepath.Dir(filepath.Dir(python))
	base, err := regular.ReadFile(filepath.Join(dir, baseFile), 4096)
	if err != nil { // it was made with an interpreter or a package of the recipe's own, or by an earlier version
		return nil, nil, false
	}
	if folders, err = packageFolders(dir); err != nil || len(folders) == 0 {
		return nil, nil, false
	}
	return append([]string{strings.TrimSpace(string(base))}, withoutSite...), folders, true
}

// NamesPackages reports whether an interpreter is that of an environment which recipe init has made for packages that
// the block names.
func NamesPackages(b *schema.Block, python string) bool {
	r := b.Meta.Runtime
	return r != nil && len(r.Requirements) > 0 && r.Venv == "" &&
		filepath.Dir(filepath.Dir(filepath.Dir(python))) == interpreter.Cache()
}

// ofPackages is the use of an environment of packages that a block names.
func ofPackages(b *schema.Block, python string) trust.Use {
	r := b.Meta.Runtime
	sum := sha256.Sum256([]byte("packages\n" + r.Python + "\n" + strings.Join(r.Requirements, "\n")))
	return trust.Use{Path: python, Digest: "sha256:" + hex.EncodeToString(sum[:]),
		Why: fmt.Sprintf("used as the Python of %s, with packages that the recipe names (%s)", b.Addr,
			strings.Join(r.Requirements, ", "))}
}
