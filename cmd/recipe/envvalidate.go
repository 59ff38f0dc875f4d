package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	enginepython "github.com/recipe-rl/recipe/engine/python"
	"github.com/recipe-rl/recipe/engine/single"
	"github.com/recipe-rl/recipe/engine/trust"
	"github.com/recipe-rl/recipe/internal/temporary"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
)

func newEnvValidate(a *app) *cobra.Command {
	var (
		vars    recipeFlags
		asJSON  bool
		verbose bool
		timeout time.Duration
	)
	cmd := &cobra.Command{
		Use:   "validate FILE ADDRESS",
		Short: "Run the tests of task folders after their solutions, and after nothing was done",
		Long: `Run the tests of each task folder of the environment "harbor" at ADDRESS of the recipe FILE, in sandboxes
as its rollouts have them: after the task's solution, which must get a reward above 0, and after nothing was done, which
must not. Each is done twice, and must get the same reward. No model is asked, and nothing is recorded.

It ends with 1 when something is wrong with a task, so that CI can wait for it.`,
		Example: `  recipe env validate tasks.hcl environment.harbor.tasks
  recipe env validate tasks.hcl environment.harbor.tasks --json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout <= 0 {
				return fmt.Errorf("--timeout must be more than 0")
			}
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), timeout, errTryTimeout)
			defer cancel()
			verdicts, err := a.verdicts(ctx, &vars, args[0], args[1], verbose)
			if err != nil {
				return a.orTimedOut(ctx, err, args[1], timeout)
			}
			report := view.Validated{Environment: args[1], OK: true}
			for _, v := range verdicts {
				report.OK = report.OK && len(v.Wrong) == 0
				report.Tasks = append(report.Tasks, validatedTask(v))
			}
			if asJSON {
				err = view.ValidatedJSON(a.out, report)
			} else {
				err = report.Show(a.out, a.style())
			}
			if err == nil && !report.OK {
				err = exitError(exitFailed)
			}
			return err
		},
	}
	vars.add(cmd)
	cmd.Flags().BoolVar(&verbose, "verbose", false, "show the log of the environment")
	cmd.Flags().DurationVar(&timeout, "timeout", time.Hour, "give up after this duration, for example 90s or 2h")
	addJSON(cmd, &asJSON)
	return cmd
}

// verdicts tries the task folders of an environment.
func (a *app) verdicts(ctx context.Context, vars *recipeFlags, file, address string, verbose bool) (_ []taskVerdict,
	err error) {
	r, block, err := a.environmentOf(vars, file, address)
	if err != nil {
		return nil, err
	}
	if block.Plugin() != "harbor" || block.Meta.External != nil {
		return nil, fmt.Errorf("%s has no task folders; expected a block environment \"harbor\". recipe env try --dry-run "+
			"tries any environment", block.Addr)
	}
	catalog, err := a.catalog()
	if err != nil {
		return nil, err
	}
	dir, remove, err := temporary.Dir("", "recipe-validate")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	body, meta, err := single.New(r, catalog, dir, a.environ, a.reports(verbose)).Evaluate(block.Addr)
	if err != nil {
		return nil, err
	}
	recipeDir, err := filepath.Abs(r.Dir)
	if err != nil {
		return nil, err
	}
	about := single.Surroundings(meta)
	python, err := a.pythonOf(r, block, about)
	if err != nil {
		return nil, err
	}
	allow := func(folder, why string) error {
		return untrusted(a.gate().Allow(trust.Use{Path: folder, Why: why}))
	}
	if secrets := secretsOf(meta.Environment); len(secrets) > 0 {
		if err := allow(r.Dir, "run with the secrets of "+strings.Join(secrets, ", ")); err != nil {
			return nil, err
		}
	}
	report := a.reports(verbose)
	return validateTasks(ctx, taskValidation{Body: body, Block: about, Python: python, RecipeDir: recipeDir, Dir: dir,
		Environ: catalog.Environment(block.Addr.Kind, block.Plugin(), body, a.environ), Allow: allow,
		Log: func(level, message string) {
			report(single.Report{Block: block.Addr, Level: level, Message: message})
		}})
}

// secretsOf are the variables of a block whose values are secrets, sorted: what tests print is shown.
func secretsOf(environment map[string]cty.Value) []string {
	var out []string
	for name, v := range environment {
		if v.ContainsMarked() {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// pythonOf is the interpreter of a block that this process may run.
func (a *app) pythonOf(r *schema.Recipe, block *schema.Block, about sdk.Block) (string, error) {
	python, err := interpreter.Find(about.Runtime, sdk.Packages{}, r.Dir, func(name string) string {
		if v, ok := about.Environment[name]; ok {
			return v
		}
		return os.Getenv(name)
	})
	if err != nil {
		return "", err
	}
	if use, foreign := enginepython.Foreign(block, python, r.Dir); foreign {
		return python, untrusted(a.gate().Allow(use))
	}
	return python, nil
}

// validatedTask is a verdict for people and programs.
func validatedTask(v taskVerdict) view.ValidatedTask {
	out := view.ValidatedTask{Task: v.Task, Folder: v.Folder, Wrong: v.Wrong, Warnings: v.Warnings}
	for _, o := range v.Solution {
		out.Solution = append(out.Solution, view.TaskReward(o))
	}
	for _, o := range v.Nothing {
		out.Nothing = append(out.Nothing, view.TaskReward(o))
	}
	return out
}
