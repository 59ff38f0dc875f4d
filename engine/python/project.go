package python

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
)

// Lock writes the lock file of a project, or updates it, unless there is an environment for what the project asks for
// and has locked. Packages that are no project need none.
func (m Maker) Lock(ctx context.Context, p sdk.Packages) error {
	if p.Project == "" {
		return nil
	}
	e, _, err := interpreter.Of(sdk.Runtime{}, p, m.Dir)
	if err != nil || e.Ready() {
		return err
	}
	uv, err := m.uv(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(e.Dir), 0o700); err != nil {
		return fmt.Errorf("create the folder of Python environments: %w", err)
	}
	m, project, err := m.apart(e)
	if err != nil {
		return err
	}
	base, err := m.pythonOf(ctx, uv, project)
	if err != nil {
		return err
	}
	return m.run(ctx, "lock the packages of "+p.Project, uv,
		append([]string{"lock", "--quiet", "--python", base}, of(project)...)...)
}

// apart is the maker for the project of an environment, and the project's absolute path. uv runs an interpreter that it
// finds in the folder of a project or in its own: in .venv, or at the path that .python-version has. No digest covers
// these, so uv is started elsewhere, with another place for the environment and with an interpreter to use.
func (m Maker) apart(e interpreter.Environment) (Maker, string, error) {
	project, err := filepath.Abs(e.Packages.Project)
	if err != nil {
		return m, "", fmt.Errorf("find the project %s: %w", e.Packages.Project, err)
	}
	m.Dir = filepath.Dir(e.Dir)
	m.Environ = append(slices.Clone(m.Environ), "UV_PROJECT_ENVIRONMENT="+e.Dir)
	return m, project, nil
}

// of are the options with which uv means a project.
func of(project string) []string {
	if filepath.Ext(project) == ".py" {
		return []string{"--script", project}
	}
	return []string{"--project", filepath.Dir(project)}
}

// makeProject creates the environment of a project with the locked packages.
func (m Maker) makeProject(ctx context.Context, uv string, e interpreter.Environment) error {
	m, project, err := m.apart(e)
	if err != nil {
		return err
	}
	base, err := m.pythonOf(ctx, uv, project)
	if err != nil {
		return err
	}
	if err := m.run(ctx, "create a Python environment", uv, "venv", "--quiet", "--python", base, e.Dir); err != nil {
		return err
	}
	// sync, unlike a list of what is locked, takes packages from the indexes that the project names.
	sync := append([]string{"sync", "--quiet", "--frozen", "--active", "--compile-bytecode", "--python", base},
		of(project)...)
	if filepath.Ext(project) != ".py" {
		sync = append(sync, "--no-dev")
	}
	return m.runIn(ctx, e.Dir, "install the packages of "+project, uv, sync...)
}

// pythonOf is the interpreter for a project: one of the system, or of uv, that its requires-python allows. The maker is
// apart from the project.
func (m Maker) pythonOf(ctx context.Context, uv, project string) (string, error) {
	find := []string{"python", "find", "--no-config"} // no .python-version
	if filepath.Ext(project) != ".py" {
		find = append(find, "--system") // of a script, uv never takes .venv
	}
	cmd := exec.CommandContext(ctx, uv, append(find, of(project)...)...)
	cmd.Dir = m.Dir
	cmd.Env = append(append(os.Environ(), m.Environ...), "VIRTUAL_ENV=")
	var printed bytes.Buffer
	cmd.Stderr = &printed
	out, err := cmd.Output()
	if err != nil {
		return "", &sdk.Error{
			Summary: "there is no Python for " + project, Detail: lastLines(printed.String(), 6), Err: err,
			Remedy: "install the Python version that its requires-python names (uv python install), or change requires-python",
		}
	}
	path := strings.TrimSpace(string(out))
	if path == "" {
		return "", fmt.Errorf("uv found no Python for %s", project)
	}
	return path, nil
}
