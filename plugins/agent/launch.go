package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/proc"
)

// launcher starts the program.
type launcher struct {
	argv []string          // with members of the task in it
	env  map[string]string // of every rollout
}

// markName is the variable that marks the programs of one block.
const markName = "RECIPE_ROLLOUTS"

func mark(folder string) string { return markName + "=" + folder }

// newLauncher finds the program and the files that its arguments name.
func newLauncher(command []string, python, model, folder string, setup environment.Setup[Config]) (launcher, error) {
	env := map[string]string{}
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "RECIPE_") && !strings.HasPrefix(name, "PLUGIN_") { // go-plugin's, for this process
			env[name] = value
		}
	}
	maps.Copy(env, setup.Environment)
	env[markName] = folder
	for _, name := range []string{"RECIPE_MODEL", "OPENAI_MODEL", "ANTHROPIC_MODEL"} {
		if _, set := setup.Environment[name]; !set {
			env[name] = model
		}
	}
	env["PATH"] = filepath.Dir(python) + string(os.PathListSeparator) + env["PATH"]
	argv := slices.Clone(command)
	for i, argument := range argv {
		path := filepath.Join(setup.RecipeDir, argument)
		if info, err := os.Stat(path); filepath.IsLocal(argument) && err == nil && info.Mode().IsRegular() {
			argv[i] = path
		}
	}
	if argv[0] == "python" || argv[0] == "python3" {
		argv[0] = python
	}
	found, err := lookPath(argv[0], env["PATH"])
	if err != nil {
		return launcher{}, &sdk.Error{Summary: fmt.Sprintf("the program %q of command is not installed", argv[0]), Err: err,
			Final: true, Remedy: "install it on this machine, or correct the first element of command: a name in PATH, a " +
				"path, or a file beside the recipe"}
	}
	argv[0] = found
	return launcher{argv, env}, nil
}

// lookPath finds a program in a PATH that is not this process's.
func lookPath(name, path string) (string, error) {
	if strings.ContainsRune(name, filepath.Separator) {
		return exec.LookPath(name)
	}
	for _, dir := range filepath.SplitList(path) {
		if found, err := exec.LookPath(filepath.Join(dir, name)); err == nil && filepath.IsAbs(found) {
			return found, nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, exec.ErrNotFound)
}

// ended is how a program ended.
type ended struct {
	code *int // its exit status; nil: it was ended, or died of a signal
	how  string
	late bool // it was ended when its time was over
	took time.Duration
	tail string // the last lines of its output
}

// killGrace is how long a program whose time is over gets to end by itself.
const killGrace = 2 * time.Second

// run runs the program in a folder until it ends, at most so long, and ends everything that it has started.
func (l *launcher) run(ctx context.Context, p *place, t *task, s *environment.Session, limit time.Duration,
) (*ended, error) {
	env := maps.Clone(l.env)
	maps.Copy(env, map[string]string{
		"OPENAI_BASE_URL": s.BaseURL, "OPENAI_API_BASE": s.BaseURL, "OPENAI_API_KEY": s.Key,
		"ANTHROPIC_BASE_URL": strings.TrimSuffix(s.BaseURL, "/v1"), "ANTHROPIC_API_KEY": s.Key,
		"RECIPE_TASK": p.task(), "PWD": p.work(), "TMPDIR": p.temporary(),
	})
	argv := make([]string, len(l.argv))
	for i, argument := range l.argv {
		argv[i], _ = t.fill(argument) // members were looked for when the tasks were read
	}
	list := make([]string, 0, len(env))
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	began := time.Now()
	program, err := proc.Start(ctx, proc.Spec{Name: logName, Argv: argv, Env: list, Dir: p.work(), LogDir: p.dir,
		MaxLog: maxLog, Foreign: true})
	if err != nil {
		return nil, &environment.InfraFailed{Err: err}
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	out, grace := &ended{}, time.Duration(0)
	select {
	case <-program.Done():
	case <-timer.C:
		out.late, grace = true, killGrace
	case <-ctx.Done():
	}
	out.took = time.Since(began)
	stopped := program.Stop(ctx, grace)
	if ctx.Err() != nil {
		return nil, errors.Join(ctx.Err(), stopped)
	}
	if stopped != nil {
		return nil, &environment.InfraFailed{Err: stopped}
	}
	out.tail = program.Tail(tailLines)
	out.how = "exit code 0"
	err = program.Err()
	var status *exec.ExitError
	switch {
	case out.late:
		out.how = fmt.Sprintf("ended by recipe after budget.seconds (%s)", limit)
	case err == nil:
		out.code = new(int)
	case errors.As(err, &status) && status.Exited():
		code := status.ExitCode()
		out.code, out.how = &code, fmt.Sprintf("exit code %d", code)
	default:
		out.how = err.Error()
	}
	return out, nil
}

// explain adds to why a session cannot be used how its program ended.
func (e *ended) explain(err error) error {
	text := "the program ended with " + e.how
	if e.tail != "" {
		text += "; its last lines: " + e.tail
	}
	var infra *environment.InfraFailed
	if errors.As(err, &infra) {
		return &environment.InfraFailed{Err: fmt.Errorf("%w (%s)", infra.Err, text)}
	}
	return fmt.Errorf("%w (%s)", err, text)
}

const (
	logName   = "agent"
	maxLog    = 8 << 20
	tailLines = 5
)
