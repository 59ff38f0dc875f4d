package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"
	"golang.org/x/sync/errgroup"

	"github.com/recipe-rl/recipe/internal/session"
	"github.com/recipe-rl/recipe/internal/temporary"
	"github.com/recipe-rl/recipe/plugins/agent/taskfolder"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Validation is what ValidateTasks needs of a block of environment "harbor".
type Validation struct {
	Body      cty.Value // of the block; what is not known is not needed
	Block     sdk.Block // its variables and its Python
	Python    string    // its interpreter, a path
	RecipeDir string
	Dir       string   // a folder for what it makes
	Environ   []string // what programs get of this machine's environment, as of os.Environ; the tasks' authors read it
	// Allow is asked where the recipe lets what it runs reach more than a sandbox does. Why ends "the recipe wants the
	// folder of tasks to be …".
	Allow func(folder, why string) error
	Log   func(level, message string)
}

// Verdict is what was found of one task folder.
type Verdict struct {
	Task     string    `json:"task"`
	Folder   string    `json:"folder"` // relative to the recipe's folder
	Solution []Outcome `json:"solution,omitempty"`
	Nothing  []Outcome `json:"nothing,omitempty"` // of an agent that does nothing
	// Wrong is what is wrong; none: the solution scores, doing nothing does not, and each gets the same twice.
	Wrong    []string `json:"wrong,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// Outcome is the reward of one try.
type Outcome struct {
	Score  *float64 `json:"score,omitempty"`  // nil: the tests gave none
	Failed string   `json:"failed,omitempty"` // why
	Output string   `json:"output,omitempty"` // the last lines of the tests
}

// tries is how often a task is tried with its solution and with nothing.
const tries = 2

// ValidateTasks runs the tests of each task folder of a block, after its solution and after nothing was done, in
// sandboxes as rollouts have them. No model is asked. The error reports that nothing could be tried.
func ValidateTasks(ctx context.Context, v Validation) ([]Verdict, error) {
	schema := HarborPlugin().Schema
	body, err := schema.Conform(spec.KnownPart(schema.ApplyDefaults(v.Body)))
	if err != nil {
		return nil, fmt.Errorf("read the block: %w", err)
	}
	var c HarborConfig
	if err := spec.Decode(body, schema, &c); err != nil {
		return nil, fmt.Errorf("read the block: %w", err)
	}
	tasks := c.Tasks
	if !filepath.IsAbs(c.Tasks) {
		c.Tasks = filepath.Join(v.RecipeDir, c.Tasks)
	}
	if opens := c.Sandbox.opens(); opens != "" {
		if err := v.Allow(c.Tasks, "run as tests in a sandbox that opens "+opens); err != nil {
			return nil, err
		}
	}
	found, err := readFolders(c)
	if err != nil {
		return nil, err
	}
	s := settingOf(environment.Setup[HarborConfig]{Dir: v.Dir, RecipeDir: v.RecipeDir, Environment: v.Block.Environment,
		Log: v.Log}, c.Program, c.Tasks)
	s.tasksDecide, s.environ = true, v.Environ
	w := &validator{setting: s, folder: filepath.Join(v.Dir, "rollouts")}
	w.env = s.variables(v.Python, w.folder)
	l := &launcher{argv: []string{"/bin/sh"}, env: w.env, own: s.own}
	if w.box, err = openBox(ctx, l, v.Python, "", s); err != nil {
		return nil, err
	}
	all := make([]*task, len(found.tasks))
	for i, folder := range found.tasks {
		all[i] = &task{folder: folder}
	}
	if err := w.box.fits(all); err != nil {
		return nil, errors.Join(err, w.box.Close())
	}
	out := make([]Verdict, len(found.tasks))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(int(min(int64(runtime.GOMAXPROCS(0)), c.Programs)))
	for i, folder := range found.tasks {
		group.Go(func() (err error) {
			at, err := filepath.Rel(c.Tasks, folder.Dir)
			if err != nil {
				return err
			}
			out[i], err = w.validate(ctx, folder, found.of(folder))
			out[i].Task, out[i].Folder = folder.Name, filepath.Join(tasks, at)
			return err
		})
	}
	return out, errors.Join(group.Wait(), w.box.Close())
}

// of are the problems of one task.
func (f folders) of(t *taskfolder.Task) []taskfolder.Problem {
	var out []taskfolder.Problem
	for _, p := range f.problems {
		if within(p.File, t.Dir) {
			out = append(out, p)
		}
	}
	return out
}

// validator tries tasks.
type validator struct {
	setting
	folder string // of rollouts
	env    map[string]string
	box    *box
}

func (w *validator) validate(ctx context.Context, folder *taskfolder.Task, problems []taskfolder.Problem) (v Verdict,
	err error) {
	for _, p := range problems {
		name, _ := filepath.Rel(folder.Dir, p.File)
		p.File = name
		if p.Warning {
			v.Warnings = append(v.Warnings, p.String())
		} else {
			v.Wrong = append(v.Wrong, p.String())
		}
	}
	for _, step := range folder.Steps {
		file := filepath.Join(step.SolutionFrom, "solve.sh")
		if _, missing := os.Stat(filepath.Join(folder.Dir, file)); missing != nil {
			v.Wrong = append(v.Wrong, file+": it is not there, so nothing shows that the task can be solved")
		}
	}
	if len(v.Wrong) > 0 {
		return v, nil
	}
	for range tries {
		solved, err := w.try(ctx, folder, true)
		if err != nil {
			return v, err
		}
		v.Solution = append(v.Solution, solved)
		idle, err := w.try(ctx, folder, false)
		if err != nil {
			return v, err
		}
		v.Nothing = append(v.Nothing, idle)
	}
	v.judge()
	return v, nil
}

// judge finds what is wrong with the outcomes.
func (v *Verdict) judge() {
	for _, o := range []struct {
		who string
		all []Outcome
		bad func(score float64) bool
		why string
	}{
		{"the solution", v.Solution, func(score float64) bool { return score <= 0 }, "expected more than 0"},
		{"an agent that does nothing", v.Nothing, func(score float64) bool { return score > 0 }, "expected 0 or less"},
	} {
		failed := slices.IndexFunc(o.all, func(one Outcome) bool { return one.Score == nil })
		if failed >= 0 {
			v.Wrong = append(v.Wrong, fmt.Sprintf("%s gets no reward: %s", o.who, o.all[failed].Failed))
			continue
		}
		first := *o.all[0].Score
		for _, one := range o.all[1:] {
			if *one.Score != first {
				v.Wrong = append(v.Wrong, fmt.Sprintf("%s gets %v, and then %v: the tests draw at random, or depend on time",
					o.who, first, *one.Score))
			}
		}
		if o.bad(first) {
			text := fmt.Sprintf("%s gets %v; %s", o.who, first, o.why)
			if said := o.all[0].Output; said != "" {
				text += "; the tests' last lines: " + said
			}
			v.Wrong = append(v.Wrong, text)
		}
	}
}

// try runs the tests of a task once.
func (w *validator) try(ctx context.Context, folder *taskfolder.Task, solve bool) (out Outcome, err error) {
	t, err := asTask(folder, 0, 1)
	if err != nil {
		return out, err
	}
	p, err := newPlace(w.folder, t)
	if err != nil {
		return out, err
	}
	defer func() {
		if removed := temporary.Remove(p.dir); removed != nil {
			w.log("warn", fmt.Sprintf("remove the folder of a try: %v", removed))
		}
	}()
	score, said, err := w.score(ctx, folder, p, solve)
	if ctx.Err() != nil {
		return out, ctx.Err()
	}
	if err != nil {
		return Outcome{Failed: strings.TrimSpace(err.Error())}, nil
	}
	return Outcome{Score: &score, Output: said}, nil
}

func (w *validator) score(ctx context.Context, folder *taskfolder.Task, p *place, solve bool) (score float64,
	said string, err error) {
	defer func() {
		var infra *environment.InfraFailed
		if errors.As(err, &infra) {
			err = infra.Err
		}
	}()
	stage, err := w.stage(folder, p)
	if err != nil {
		return 0, "", err
	}
	var done []map[string]float64
	for _, step := range folder.Steps {
		if err := stage.begin(ctx, w.box, w.env, step); err != nil {
			return 0, "", err
		}
		if solve {
			if err := stage.solve(ctx, w.box, w.env, step); err != nil {
				return 0, "", err
			}
		}
		rewards, err := stage.judge(ctx, w.box, w.env, step)
		if err != nil {
			return 0, "", err
		}
		if done = append(done, rewards); !step.Enough(rewards) {
			break
		}
	}
	score, own, err := taskfolder.Score(folder.Combine(done))
	if err == nil {
		err = session.CheckMetrics(own)
	}
	return score, stage.said, err
}
