// Package atropos runs unmodified atroposlib environments: it writes the settings that connect one to inference and
// to the trajectory API, starts it in its own Python, watches what it does, says in plain words why it failed,
// evaluates it on demand, and ends it without losing a scored group.
package atropos

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/proc"
	"github.com/recipe-rl/recipe/sdk/proxy"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// evaluated is from when metrics of evaluations are reported.
const evaluated = "after its first evaluation"

// Plugin defines `environment "atropos"`.
func Plugin() *sdk.Definition {
	return environment.New("atropos", "Runs an unmodified environment of atroposlib",
		func() sdk.Service[Config] { return &Environment{} },
		sdk.WithPackages(packages),
		sdk.WithMetrics(slices.Concat(
			spec.Metrics("env/{reward_all_groups,completion_length}", "", "means of all groups"),
			spec.Metrics("env/groups{,_sent,_failed,_same_scores,_too_long}", "groups", ""),
			spec.Metrics("env/fraction_same_scores", "share of groups", ""),
			spec.Since(evaluated, spec.Metrics("eval/policy_version{,_first}", "", "version that was evaluated")),
			spec.Since(evaluated, spec.Metrics("eval/*", "", "what the environment's evaluation returns")),
			spec.Metrics("*", "", "what the environment logs, by its names"),
		)...),
		sdk.WithEnvironmentVariables("HF_*", "HUGGING_FACE_HUB_TOKEN", "WANDB_*"),
		sdk.WithDoc(
			"Runs any environment written for atroposlib, unmodified. Its Python comes from runtime { "+
				"python = … } or requirements.",
		),
	)
}

//go:embed launcher/*.py
var launcherSource embed.FS

const launcherName = "recipe_atropos.py"

// Environment is one environment block.
type Environment struct {
	mu  sync.Mutex
	run *running // nil before Run has found out everything
}

// running is what does not change while the block runs.
type running struct {
	req       sdk.Request[Config]
	host      sdk.Host
	endpoints endpoints
	python    string
	launcher  string
	name      string
	folder    string // working directory
	how       string // --script or --module
	what      string
}

var (
	_ sdk.Service[Config]   = (*Environment)(nil)
	_ sdk.Evaluator         = (*Environment)(nil)
	_ sdk.Planner[Config]   = (*Environment)(nil)
	_ sdk.Validator[Config] = (*Environment)(nil)
)

// Run starts the environment's processes and watches them until the context ends.
func (e *Environment) Run(ctx context.Context, req sdk.Request[Config], host sdk.Host) error {
	// A process of an earlier attempt cannot be adopted: it is registered with the trajectory API under an id that is
	// only its own. It ends first, whatever becomes of this life.
	if err := proc.KillAll(ctx, proc.Parse(req.Handle)); err != nil {
		host.Log("warn", err.Error())
	}
	r, err := prepare(req, host)
	if err != nil {
		return err
	}
	e.mu.Lock()
	e.run = r
	e.mu.Unlock()
	if req.Config.EvaluateBefore {
		if err := r.evaluateAndTell(ctx, "before"); err != nil {
			return err
		}
	}
	if err := r.serve(ctx); err != nil {
		return err
	}
	if req.Config.EvaluateAfter {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), host.Grace()/2)
		defer cancel()
		if err := r.evaluateAndTell(last, "after"); err != nil {
			host.Log("warn", "evaluation after training: "+err.Error())
		}
	}
	return nil
}

func prepare(req sdk.Request[Config], host sdk.Host) (*running, error) {
	c := req.Config
	ends, err := endpointsOf(c)
	if err != nil {
		return nil, err
	}
	r := &running{req: req, host: host, endpoints: ends, folder: req.RecipeDir, name: c.Name}
	if r.name == "" {
		r.name = req.Address[strings.LastIndexByte(req.Address, '.')+1:]
	}
	if c.Path != "" {
		r.folder = within(req.RecipeDir, c.Path)
	}
	r.how, r.what = "--module", c.Module
	if c.Script != "" {
		r.how, r.what = "--script", within(r.folder, c.Script)
		if _, err := os.Stat(r.what); err != nil {
			return nil, &sdk.Error{Summary: "the environment's script cannot be read", Err: err,
				Remedy: "correct script; it counts from path, else from the recipe's folder"}
		}
	}
	r.python, err = interpreter.Find(req.Runtime, packages(interpreter.GPU()), req.RecipeDir, func(name string) string {
		if v, ok := req.Environment[name]; ok {
			return v
		}
		return os.Getenv(name)
	})
	if err != nil {
		return nil, err
	}
	if r.launcher, err = writeLauncher(req.Dir); err != nil {
		return nil, err
	}
	return r, nil
}

// writeLauncher puts the launcher and what it imports into a folder of their own, replacing older ones: they belong to
// this version of the plugin.
func writeLauncher(dir string) (string, error) {
	if err := os.RemoveAll(filepath.Join(dir, "launcher")); err != nil {
		return "", fmt.Errorf("remove an older launcher of the environment: %w", err)
	}
	if err := os.CopyFS(dir, launcherSource); err != nil {
		return "", fmt.Errorf("write the environment's launcher: %w", err)
	}
	return filepath.Join(dir, "launcher", launcherName), nil
}

func within(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// serve runs all replicas. When one ends before it was told to, all end: the engine starts the block again.
func (r *running) serve(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	total := int(max(1, r.req.Config.Replicas))
	team := newTeam(r.host, outputs.Environment{Name: r.name, GroupSize: r.req.Config.GroupSize}, total)
	team.doing.inference = r.req.Config.Inference.Address
	if r.req.Config.Trajectories != nil {
		team.doing.trajectories = r.req.Config.Trajectories.Address
	}
	r.host.Activities(team.doing.activities)
	for i := range total {
		p := &process{running: r, team: team, index: i, dir: filepath.Join(r.req.Dir, "process-"+strconv.Itoa(i))}
		group.Go(func() error { return p.live(ctx) })
	}
	err := group.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// environ is the environment of the environment's process.
func (r *running) environ() []string {
	env := map[string]string{
		"PYTHONUNBUFFERED":       "1",
		"TOKENIZERS_PARALLELISM": "false",
	}
	if !r.req.Config.Wandb {
		env["WANDB_MODE"] = "disabled" // some environments force it on
	}
	for k, v := range r.req.Environment {
		env[k] = v
	}
	out := make([]string, 0, len(env)+len(os.Environ()))
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		_, replaced := env[name]
		if !replaced && name != "INFER_TP" { // atroposlib divides a number by this text
			out = append(out, entry)
		}
	}
	for k, v := range env {
		out = append(out, k+"="+v)
	}
	for k, v := range interpreter.Bytecode(r.python, out) {
		if _, set := r.req.Environment[k]; !set {
			out = append(out, k+"="+v) // of two entries the last one counts
		}
	}
	return proxy.Past(out, r.endpoints.BaseURL, r.endpoints.Trajectories)
}

// argv is the command line of one process.
func (r *running) argv(events, config, command string) []string {
	return append([]string{r.python, r.launcher, events, config, r.how, r.what, command}, r.req.Config.Args...)
}
