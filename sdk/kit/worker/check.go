package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/internal/temporary"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// checkTimeout bounds the question of a plan: it needs no PyTorch, so an answer takes about a second.
const checkTimeout = 30 * time.Second

var missingModule = lazyregexp.New(`No module named '([^']+)'`)

// Mistake is one that a program finds in its own settings: the names that lead to it, and what to do.
type Mistake struct {
	Path    []string `json:"path"`
	Summary string   `json:"summary"`
	Detail  string   `json:"detail"`
	Warning bool     `json:"warning"`
}

// Check asks a trainer's program what is wrong with its settings, before anything starts: `python -m MODULE --check
// FILE`, where FILE holds the settings as JSON. The program prints a JSON list of Mistake and exits with 0. An error
// says that the program could not be asked, such as without its packages; nothing is known of the settings then.
func Check(ctx context.Context, python, module string, source fs.FS, settings any) ([]spec.Problem, error) {
	if python == "" {
		return nil, errors.New("it has no Python yet: run recipe init")
	}
	dir, remove, err := temporary.Dir("", "recipe-check-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = remove() }()
	if err := extract(dir, []fs.FS{source}); err != nil {
		return nil, err
	}
	data, err := json.Marshal(settings)
	if err != nil {
		return nil, fmt.Errorf("write settings as JSON: %w", err)
	}
	file := filepath.Join(dir, "settings.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if strings.ContainsRune(python, filepath.Separator) {
		if python, err = filepath.Abs(python); err != nil {
			return nil, err
		}
	}
	cmd := exec.CommandContext(ctx, python, "-m", module, "--check", file)
	// Python imports from the folder that it is started in before its own: not from the recipe's, whose code a plan must
	// not run.
	cmd.Dir = dir
	cmd.Env = append(interpreter.Asking(os.Environ()), "PYTHONPATH="+dir, "PYTHONDONTWRITEBYTECODE=1", "PYTHONSAFEPATH=1")
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s did not answer within %s", python, checkTimeout)
		}
		if missing := missingModule.FindStringSubmatch(stderr.String()); missing != nil {
			return nil, fmt.Errorf("%s has no package %s", python, missing[1])
		}
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		return nil, fmt.Errorf("%s: %w: %s", python, err, lines[len(lines)-1])
	}
	var mistakes []Mistake
	if err := json.Unmarshal(stdout.Bytes(), &mistakes); err != nil {
		return nil, fmt.Errorf("%s answered %q: %w", python, stdout.String(), err)
	}
	var problems []spec.Problem
	for _, m := range mistakes {
		var path cty.Path
		for _, name := range m.Path {
			path = path.GetAttr(name)
		}
		problems = append(problems, spec.Problem{Path: path, Summary: m.Summary, Detail: m.Detail, Warning: m.Warning})
	}
	return problems, nil
}
