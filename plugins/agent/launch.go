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
	"github.com/recipe-rl/recipe/sdk/kit/sandbox"
	"github.com/recipe-rl/recipe/sdk/proc"
)

// launcher starts the program.
type launcher struct {
	argv []string          // with members of the task in it
	env  map[string]string // of every rollout
	own  map[string]string // what of env the recipe sets

	agent       *Known // nil: argv is the whole command, else the program alone
	args        []string
	instruction string
	model       string

	box *box // nil: programs run without a sandbox
}

// markName is the variable that marks the programs of one block.
const markName = "RECIPE_ROLLOUTS"

func mark(folder string) string { return markName + "=" + folder }

// setting is what a block has that starts programs.
type setting struct {
	Program
	dir, recipeDir string // of the block and of the recipe
	own            map[string]string
	log            func(level, message string)
	hidden         []string // files and folders that no program sees, as the recipe names them: see answers
	tasksDecide    bool     // whether a rollout has a network is for each task to say
	environ        []string // what programs get of the environment of this process
}

func settingOf[C environment.Config](setup environment.Setup[C], p Program, hidden ...string) setting {
	s := setting{Program: p, dir: setup.Dir, recipeDir: setup.RecipeDir, own: setup.Environment, log: setup.Log,
		hidden: hidden, environ: os.Environ()}
	return s
}

// refuses reports whether a path is in the folder of tasks, of which no part may be shown.
func (s setting) refuses(path string) bool {
	return s.tasksDecide && slices.ContainsFunc(s.answers(nil), func(tasks string) bool {
		return sandbox.Below(path, tasks)
	})
}

// variables are those of every rollout of a folder.
func (s setting) variables(python, folder string) map[string]string {
	env := map[string]string{}
	for _, entry := range s.environ {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "RECIPE_") && !strings.HasPrefix(name, "PLUGIN_") { // go-plugin's, for this process
			env[name] = value
		}
	}
	maps.Copy(env, s.own)
	env[markName] = folder
	env["PATH"] = filepath.Dir(python) + string(os.PathListSeparator) + env["PATH"]
	return env
}

// newLauncher finds the program and the files that its arguments name.
func newLauncher(ctx context.Context, python, model, folder string, c setting) (launcher, error) {
	env := c.variables(python, folder)
	for _, name := range []string{"RECIPE_MODEL", "OPENAI_MODEL", "ANTHROPIC_MODEL"} {
		if _, set := c.own[name]; !set {
			env[name] = model
		}
	}
	l := launcher{env: env, own: c.own, model: model}
	if k, ok := c.known(); ok {
		l.agent, l.args, l.instruction = &k, beside(c.recipeDir, c.AgentArgs), c.instruction()
		return l, l.find(ctx, python, c.log)
	}
	l.argv = beside(c.recipeDir, c.Command)
	if l.argv[0] == "python" || l.argv[0] == "python3" {
		l.argv[0] = python
	}
	found, err := lookPath(l.argv[0], env["PATH"])
	if err != nil {
		return launcher{}, &sdk.Error{Summary: fmt.Sprintf("the program %q of command is not installed", l.argv[0]), Err: err,
			Final: true, Remedy: "install it on this machine, or correct the first element of command: a name in PATH, a " +
				"path, or a file beside the recipe"}
	}
	l.argv[0] = found
	return l, nil
}

// beside makes whole paths of arguments that name files beside the recipe.
func beside(recipeDir string, args []string) []string {
	out := slices.Clone(args)
	for i, argument := range out {
		path := filepath.Join(recipeDir, argument)
		if info, err := os.Stat(path); filepath.IsLocal(argument) && err == nil && info.Mode().IsRegular() {
			out[i] = path
		}
	}
	return out
}

// find finds the program of a known agent, and logs its version.
func (l *launcher) find(ctx context.Context, python string, log func(level, message string)) error {
	program, err := l.agent.Find(func(name string) (string, error) { return lookPath(name, l.env["PATH"]) }, python)
	if err != nil {
		return err
	}
	l.argv = []string{program}
	version, err := l.agent.Version(ctx, program, list(l.env))
	var missing *sdk.Error
	switch {
	case errors.As(err, &missing):
		return err
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		log("warn", err.Error())
	case l.agent.Warning(version) != "":
		log("warn", l.agent.Warning(version))
	default:
		log("info", fmt.Sprintf("%s %s, %s", l.agent.Name, version, program))
	}
	return nil
}

// list are variables as a process takes them.
func list(env map[string]string) []string {
	out := make([]string, 0, len(env))
	for name, value := range env {
		out = append(out, name+"="+value)
	}
	return out
}

// command is how the program of one rollout is started: its arguments and its variables. It writes files for it.
// The program sees its folder at seen, and own are variables of the task.
func (l *launcher) command(p, seen *place, t *task, baseURL, key string, own map[string]string) ([]string,
	map[string]string, error) {
	env := maps.Clone(l.env)
	maps.Copy(env, withPath(own, env["PATH"]))
	fill := func(text string) string {
		filled, _ := t.fill(text) // members were looked for when the tasks were read
		return filled
	}
	var argv []string
	if l.agent == nil {
		for _, argument := range l.argv {
			argv = append(argv, fill(argument))
		}
	} else {
		r := request{instruction: fill(l.instruction), model: l.model, baseURL: baseURL, home: seen.home()}
		for _, argument := range l.args {
			r.args = append(r.args, fill(argument))
		}
		s := l.agent.start(r)
		argv = append(slices.Clone(l.argv), s.args...)
		for name, value := range s.env {
			if _, set := l.own[name]; !set { // a person knows better
				env[name] = value
			}
		}
		if err := p.writeHome(s.files); err != nil {
			return nil, nil, err
		}
	}
	maps.Copy(env, map[string]string{
		"OPENAI_BASE_URL": baseURL, "OPENAI_API_BASE": baseURL, "OPENAI_API_KEY": key,
		"ANTHROPIC_BASE_URL": strings.TrimSuffix(baseURL, "/v1"), "ANTHROPIC_API_KEY": key,
		"RECIPE_TASK": seen.task(), "PWD": seen.work(), "TMPDIR": seen.temporary(),
	})
	return argv, env, nil
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
func (l *launcher) run(ctx context.Context, p *place, t *task, s *environment.Session, limit time.Duration, has scene,
) (*ended, error) {
	if l.box != nil {
		return l.box.run(ctx, l, p, t, s, limit, has)
	}
	argv, env, err := l.command(p, p, t, s.BaseURL, s.Key, nil)
	if err != nil {
		return nil, &environment.InfraFailed{Err: err}
	}
	began := time.Now()
	program, err := start(ctx, logName, p, argv, env)
	if err != nil {
		return nil, err
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
		out.how = fmt.Sprintf("ended by recipe when its time of %s was over", limit)
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

// start starts a program. Its output goes to the log of the rollout.
func start(ctx context.Context, name string, p *place, argv []string, env map[string]string, files ...*os.File,
) (*proc.Program, error) {
	program, err := proc.Start(ctx, proc.Spec{Name: name, Argv: argv, Env: list(env), Dir: p.work(), LogDir: p.dir,
		MaxLog: maxLog, Foreign: true, Files: files})
	if err != nil {
		return nil, &environment.InfraFailed{Err: err}
	}
	return program, nil
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
