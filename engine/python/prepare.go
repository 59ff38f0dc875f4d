// Package python creates the Python environments of blocks.
//
// uv resolves and installs: it is much faster than pip, shares files between environments, and can override pinned
// versions, which vLLM's build for CPUs needs. It is found in PATH, else installed from PyPI into the cache.
package python

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
)

// uvVersion is the version to install if PATH has no uv.
const uvVersion = "0.13.8"

// isolated keeps Python from importing modules of the folder that it is started in, which is the recipe's: a folder
// "venv" there would be run in place of Python's own.
const isolated = "-I"

// creating is what a wait for the lock of an environment waits for.
const creating = "another recipe init that creates the same environment"

// Maker creates environments.
type Maker struct {
	Log io.Writer // output of uv
	Dir string    // requirements that are paths are relative to it: the recipe's folder
	// Environ is added to the environment of uv.
	Environ []string
	// NoBuild installs wheels only: nothing of a package that a recipe names is run while it is installed.
	NoBuild bool
}

// Prepare creates the environment, unless it exists. Concurrent callers create it once. An incomplete environment is
// removed, by this call or the next. made says whether it was created.
func (m Maker) Prepare(ctx context.Context, e interpreter.Environment) (made bool, err error) {
	if err := os.MkdirAll(filepath.Dir(e.Dir), 0o700); err != nil {
		return false, fmt.Errorf("create the folder of Python environments: %w", err)
	}
	unlock, err := private.Lock(ctx, e.Dir+".lock", creating)
	if err != nil {
		return false, err
	}
	defer unlock()
	if e.Ready() {
		return false, nil
	}
	if err := os.RemoveAll(e.Dir); err != nil {
		return false, fmt.Errorf("remove an incomplete Python environment: %w", err)
	}
	if err := m.make(ctx, e); err != nil {
		return false, errors.Join(err, os.RemoveAll(e.Dir))
	}
	return true, e.Finish()
}

func (m Maker) make(ctx context.Context, e interpreter.Environment) error {
	uv, err := m.uv(ctx)
	if err != nil {
		return err
	}
	if e.Packages.Project != "" {
		return m.makeProject(ctx, uv, e)
	}
	base, err := base(e.Python)
	if err != nil {
		return err
	}
	if err := m.isName(base); err != nil {
		return err
	}
	err = m.install(ctx, uv, base, e)
	wanted := wantedPython(err)
	if wanted == "" {
		return m.withoutWheels(unsupported(err, e.Packages.Supported))
	}
	if found := m.newer(ctx, uv, wanted); e.Python == "" && found != "" {
		if _, err := fmt.Fprintf(m.Log, "the packages need Python %s: %s is used\n", wanted, found); err != nil {
			return err
		}
		if err := os.RemoveAll(e.Dir); err != nil {
			return fmt.Errorf("remove an incomplete Python environment: %w", err)
		}
		return m.install(ctx, uv, found, e)
	}
	return needsPython(err, wanted)
}

// install creates the environment with an interpreter and installs its packages.
func (m Maker) install(ctx context.Context, uv, base string, e interpreter.Environment) error {
	if err := m.run(ctx, "create a Python environment", uv, "venv", "--quiet", "--python", base, e.Dir); err != nil {
		return err
	}
	own, err := filepath.EvalSymlinks(e.Executable())
	if err != nil {
		return fmt.Errorf("find the interpreter of a Python environment: %w", err)
	}
	args := []string{"pip", "install", "--python", e.Executable()}
	if !m.NoBuild { // see compile
		args = append(args, "--compile-bytecode")
	}
	if len(e.Packages.Overrides) > 0 {
		path := filepath.Join(e.Dir, "overrides.txt")
		if err := os.WriteFile(path, []byte(strings.Join(e.Packages.Overrides, "\n")+"\n"), 0o600); err != nil {
			return fmt.Errorf("write the overrides of a Python environment: %w", err)
		}
		args = append(args, "--override", path)
	}
	if len(e.Packages.Supported) > 0 {
		path := filepath.Join(e.Dir, "supported.txt")
		if err := os.WriteFile(path, []byte(strings.Join(e.Packages.Supported, "\n")+"\n"), 0o600); err != nil {
			return fmt.Errorf("write the supported versions of a Python environment: %w", err)
		}
		args = append(args, "--constraint", path)
	}
	if m.NoBuild {
		args = append(args, "--no-build")
	}
	list, err := requirements(e)
	if err != nil {
		return err
	}
	if err := m.run(ctx, "install "+names(e.Packages), uv, append(args, list...)...); err != nil {
		return err
	}
	if m.NoBuild {
		if err := compile(ctx, e.Dir, own); err != nil {
			return err
		}
	}
	for alias, name := range e.Packages.Aliases {
		if err := addAlias(ctx, e, alias, name); err != nil {
			return err
		}
	}
	return nil
}

// requirements are the arguments of uv that name what to install. Hashes can only be given in a file.
func requirements(e interpreter.Environment) ([]string, error) {
	if e.Packages.Locked() {
		path := filepath.Join(e.Dir, "requirements.txt")
		if err := os.WriteFile(path, []byte(strings.Join(e.Packages.Requirements, "\n")+"\n"), 0o600); err != nil {
			return nil, fmt.Errorf("write the requirements of a Python environment: %w", err)
		}
		return []string{"--require-hashes", "--requirement", path}, nil
	}
	var args, plain []string
	for _, requirement := range e.Packages.Requirements {
		if what, ok := interpreter.Editable(requirement); ok {
			args = append(args, "--editable="+what)
		} else {
			plain = append(plain, requirement)
		}
	}
	// After "--", a requirement is never parsed as an option.
	return append(append(args, "--"), plain...), nil
}

// names are the requirements for a message, without hashes.
func names(p sdk.Packages) string {
	list := make([]string, len(p.Requirements))
	for i, requirement := range p.Requirements {
		list[i], _, _ = strings.Cut(requirement, " --hash=")
	}
	return strings.Join(list, ", ")
}

// base is the interpreter to create an environment with: a path, a version that uv finds, or python3 in PATH.
func base(python string) (string, error) {
	if python != "" {
		return python, nil
	}
	path, err := exec.LookPath("python3")
	if err != nil {
		return "", &sdk.Error{Summary: "python3 is not in PATH",
			Remedy: "install Python 3.10 or newer, or set it: runtime { python = \"/path/to/python\" }", Err: err}
	}
	return path, nil
}

// isName refuses a version or name that uv would take for a folder with an interpreter: nobody was asked about that.
func (m Maker) isName(python string) error {
	if strings.ContainsRune(python, filepath.Separator) {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(m.Dir, python)); err != nil {
		return nil //nolint:nilerr // there is none
	}
	return &sdk.Error{Summary: fmt.Sprintf("runtime.python = %q is also a file or folder beside the recipe", python),
		Remedy: fmt.Sprintf("rename it, or name an interpreter by its path, such as \"./%s/bin/python\"", python)}
}

// uv returns the program's path.
func (m Maker) uv(ctx context.Context) (string, error) {
	if path, err := exec.LookPath("uv"); err == nil {
		return path, nil
	}
	dir := filepath.Join(interpreter.Cache(), "uv-"+uvVersion)
	path := filepath.Join(dir, "bin", "uv")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	python, err := base("")
	if err != nil {
		return "", err
	}
	unlock, err := private.Lock(ctx, dir+".lock", creating)
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil { // created meanwhile by another call, which may be using it
		return path, nil
	}
	if err := m.run(ctx, "create an environment for uv", python, isolated, "-m", "venv", "--clear", dir); err != nil {
		return "", err
	}
	if err := m.run(ctx, "install uv", filepath.Join(dir, "bin", "python"), isolated, "-m", "pip", "install", "--quiet",
		"--disable-pip-version-check", "uv=="+uvVersion); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return path, nil
}

// run runs one program to its end; an error contains the end of its output.
func (m Maker) run(ctx context.Context, doing, program string, args ...string) error {
	return m.runIn(ctx, "", doing, program, args...)
}

// runIn is run in an activated Python environment; empty: in that of this process.
func (m Maker) runIn(ctx context.Context, venv, doing, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = m.Dir
	cmd.Env = append(os.Environ(), m.Environ...)
	if venv != "" {
		cmd.Env = append(cmd.Env, "VIRTUAL_ENV="+venv)
	}
	var output bytes.Buffer
	cmd.Stdout = io.MultiWriter(m.Log, &output)
	cmd.Stderr = cmd.Stdout
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	case err != nil:
		return &sdk.Error{
			Summary: "could not " + doing, Detail: lastLines(output.String(), 12),
			Err: &printed{err, output.String()},
			Remedy: "check that the package index can be reached (UV_INDEX_URL and PIP_INDEX_URL set another) and " +
				"that the versions exist for this machine; then run recipe init again",
		}
	}
	return nil
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
