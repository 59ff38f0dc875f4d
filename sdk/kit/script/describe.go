package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/recipe-rl/recipe/internal/temporary"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
	pythonsdk "github.com/recipe-rl/recipe/sdk/python"
)

// describeTimeout bounds the one run of a file to learn its schema: imports of large packages on a busy machine.
const describeTimeout = 2 * time.Minute

// described is what recipe_sdk.environment.describe writes.
type described struct {
	Description
	Files   []string `json:"files,omitempty"` // imported from the folder of the source
	Problem *problem `json:"problem,omitempty"`
}

// Describe imports the environment in Python, with an interpreter and the variables of environ, and returns what it
// says of itself. The error names the file and line of a mistake.
func Describe(ctx context.Context, python, name string, s Source, environ []string) (Description, error) {
	d, err := describe(ctx, asking{python: python, name: name, source: s, environ: environ})
	return d.Description, err
}

// asking is one run of Python to learn what an environment says of itself.
type asking struct {
	python, name string
	source       Source
	environ      []string
	allowed      []string // files of the source's folder that may be imported, absolute; nil: all
	confine      Confine
}

// Confine returns what to run instead of a command so that it can do less, and write to some folders alone.
type Confine func(argv []string, writable ...string) []string

func describe(ctx context.Context, a asking) (d described, err error) {
	python, s := a.python, a.source
	dir, remove, err := temporary.Dir("", "recipe-describe")
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	home, err := filepath.EvalSymlinks(filepath.Dir(s.File))
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return d, err
	}
	if err := writeSource(dir, s); err != nil {
		return d, err
	}
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	output := filepath.Join(dir, "description.json")
	argv := []string{python, "-m", "recipe_sdk.environment.describe", s.entry(), a.name, output}
	if a.allowed != nil {
		list, err := json.Marshal(a.allowed)
		if err != nil {
			return d, err
		}
		argv = append(argv, filepath.Join(dir, "allowed.json"))
		if err := os.WriteFile(argv[len(argv)-1], list, 0o600); err != nil {
			return d, err
		}
	}
	if a.confine != nil {
		argv = a.confine(argv, dir)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = withPython(python, a.environ, nil, dir)
	defer interpreter.ForgetBytecode(dir)
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	// What the file has started ends with the question.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	defer func() {
		if cmd.Process != nil {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		}
	}()
	printed, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return d, &sdk.Error{Summary: fmt.Sprintf("importing it took longer than %s", describeTimeout),
			Remedy: "do what takes long in setup(), which is called when the block starts, and not at the top of the file"}
	}
	data, unwritten := os.ReadFile(output)
	if err != nil || unwritten != nil {
		return d, fmt.Errorf("%s could not import it: %w; it printed:\n%s", python, errors.Join(err, unwritten),
			lastLines(string(printed), 12))
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return d, fmt.Errorf("read its description: %w", err)
	}
	d.Files = slices.DeleteFunc(d.Files, func(file string) bool { // of a recipe in the folder for temporary files
		return within(filepath.Join(home, file), dir)
	})
	if d.Problem != nil {
		return d, d.Problem.asError("", "", sdk.Packages{})
	}
	return d, nil
}

// entry is what the Python side imports: a file, or a module.
func (s Source) entry() string {
	if s.File != "" {
		return s.File
	}
	return s.Module
}

// writeSource puts recipe_sdk, and the packages that the plugin carries, into a folder for PYTHONPATH.
func writeSource(dir string, s Source) error {
	if s.Tree == nil {
		return pythonsdk.Write(dir)
	}
	return pythonsdk.WriteTree(dir, s.Tree, pythonsdk.Source())
}

// withPython is the environment of a Python process: environ, then further variables, then what finds the folder of
// packages. What is compiled of them is kept; of the author's own files recipe_sdk keeps nothing.
func withPython(python string, environ []string, further map[string]string, dir string) []string {
	env := map[string]string{"PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1"}
	for name, value := range further {
		env[name] = value
	}
	var out []string
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if _, set := env[name]; name == "PYTHONPATH" && !set {
			env[name] = value
		} else if !set {
			out = append(out, entry)
		}
	}
	if before := env["PYTHONPATH"]; before != "" {
		dir += string(os.PathListSeparator) + before
	}
	env["PYTHONPATH"] = dir
	for name, value := range env {
		out = append(out, name+"="+value)
	}
	for name, value := range interpreter.Bytecode(python, out) {
		if _, set := further[name]; !set {
			out = append(out, name+"="+value) // of two entries the last one counts
		}
	}
	return out
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
