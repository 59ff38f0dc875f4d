package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/internal/bounded"
	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/internal/temporary"
	"github.com/recipe-rl/recipe/sdk"
)

// Find returns the program that starts an agent, without running anything: for a library python, the interpreter of the
// block (empty: there is none), else a program beside that or in PATH. The error says how a person installs it.
func (k Known) Find(lookPath func(name string) (string, error), python string) (string, error) {
	switch {
	case k.Package == "":
		if found, err := exec.LookPath(filepath.Join(filepath.Dir(python), k.Program)); err == nil && python != "" {
			return found, nil
		}
		path, err := lookPath(k.Program)
		if err != nil {
			return "", k.missing(fmt.Sprintf("there is no program %q in PATH", k.Program))
		}
		return path, nil
	case python == "":
		return "", k.missing("there is no Python")
	}
	return python, nil
}

func (k Known) missing(why string) error {
	return &sdk.Error{Summary: fmt.Sprintf("the agent %s is not installed: %s", k.Name, why), Final: true,
		Remedy: "install it: " + k.Install}
}

// packageVersion prints the version of a distribution without importing it, and nothing of the folder that it runs in.
const packageVersion = `
import sys
sys.path = [folder for folder in sys.path if folder]
import importlib.metadata as m
try:
    print(m.version(sys.argv[1]))
except m.PackageNotFoundError:
    print("none")`

var versionText = lazyregexp.New(`\d+(\.\d+)+`)

// Version runs the program that Find returned, which tells the agent's version. It runs as in a rollout, in an empty
// folder: opencode runs what a bunfig.toml of its folder names. The error of a library that is not there says how a
// person installs it.
func (k Known) Version(ctx context.Context, program string, environ []string) (_ string, err error) {
	made, remove, err := temporary.Dir("", "recipe-agent-")
	if err != nil {
		return "", fmt.Errorf("read the version of %s: %w", program, err)
	}
	defer func() { err = errors.Join(err, remove()) }()
	home := filepath.Join(made, "home") // there is a lock beside it
	if err := os.Mkdir(home, 0o700); err != nil {
		return "", fmt.Errorf("read the version of %s: %w", program, err)
	}
	if program, err = filepath.Abs(program); err != nil { // it runs in another folder
		return "", fmt.Errorf("read the version of %s: %w", program, err)
	}
	args := k.version
	if k.Package != "" {
		args = []string{"-c", packageVersion, k.Package}
	}
	ctx, cancel := context.WithTimeout(ctx, versionWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = home, slices.Concat(environ, []string{"PWD=" + home}), time.Second
	for name, value := range k.start(request{home: home}).env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	found := bounded.Buffer{Limit: versionBytes}
	cmd.Stdout = &found
	err = cmd.Run()
	err = cmp.Or(found.Err(), err)
	out := strings.TrimSpace(found.String())
	switch version := versionText.FindString(out); {
	case err != nil && ctx.Err() != nil:
		return "", fmt.Errorf("read the version of %s: no answer in %s", program, versionWithin)
	case err != nil:
		return "", fmt.Errorf("read the version of %s: %w", program, err)
	case k.Package != "" && out == "none":
		return "", k.missing(fmt.Sprintf("%s has no package %s", program, k.Package))
	case version == "":
		return "", fmt.Errorf("read the version of %s: there is none in its output %.80q", program, out)
	default:
		return version, nil
	}
}

// versionBytes are as many as a program may print that is asked for its version.
const versionBytes = 1 << 20

// versionWithin is long: of Python programs some import much first, and other rollouts may use the processors.
const versionWithin = time.Minute

// Warning is what a person should know of a version; empty: nothing.
func (k Known) Warning(version string) string {
	switch {
	case older(version, k.From):
		return fmt.Sprintf("%s %s is older than %s, the oldest with which recipe was tried; it may take other arguments",
			k.Name, version, k.From)
	case !older(version, k.Before):
		return fmt.Sprintf("%s %s is newer than recipe was tried with (%s to before %s); it may take other arguments", k.Name,
			version, k.From, k.Before)
	}
	return ""
}

// older compares versions by their numbers; a missing one is 0.
func older(a, b string) bool { return slices.Compare(numbers(a), numbers(b)) < 0 }

func numbers(version string) []int {
	out := make([]int, 4)
	for i, part := range strings.SplitN(version, ".", len(out)) {
		n, err := strconv.Atoi(part)
		if err != nil {
			break
		}
		out[i] = n
	}
	return out
}
