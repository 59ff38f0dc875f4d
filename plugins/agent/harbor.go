package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/plugins/agent/taskfolder"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
	"github.com/recipe-rl/recipe/sdk/kit/sandbox"
	"github.com/recipe-rl/recipe/sdk/kit/taskfile"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// HarborPlugin defines `environment "harbor"`.
func HarborPlugin() *sdk.Definition {
	return environment.DefineRollouts("harbor", "Task folders in Harbor's format, solved by an agent in a sandbox.",
		openHarbor, sdk.WithDoc("Each rollout is one run of an agent on one task folder: task.toml, instruction.md, "+
			"environment, tests and solution. Its tests give the reward. docs/environments/harbor.md explains it."))
}

// HarborConfig is the body of `environment "harbor" "name"`.
type HarborConfig struct {
	environment.Settings
	environment.SessionSettings
	Program

	Tasks string   `recipe:"tasks" required:"true" file:"content" doc:"Folder of task folders, relative to the recipe, or one task folder"`
	Skip  []string `recipe:"skip" default:"[]" doc:"Instructions of Dockerfiles that are left out, such as [\"RUN\", \"COPY --from\"], because this machine has what they install. Others than FROM, ENV, WORKDIR and COPY are refused without it"`
}

var (
	_ environment.Validator     = HarborConfig{}
	_ environment.Seeded        = HarborConfig{}
	_ environment.RolloutConfig = HarborConfig{}
	_ environment.Prompted      = HarborConfig{}
	_ environment.FileChecker   = HarborConfig{}
)

// Members of a task that a command may have in its arguments.
const (
	memberInstruction = "instruction"
	memberName        = "name"
)

// Validate finds what the schema cannot express.
func (c HarborConfig) Validate() []spec.Problem {
	problems := c.problems(c.Stop)
	if c.Sandbox.Kind == sandbox.None {
		problems = append(problems, spec.Problem{Path: cty.GetAttrPath("sandbox").GetAttr("kind"),
			Summary: "task folders need a sandbox",
			Detail: `kind is "none", and a task's files have paths of their own, such as /tests. Leave it out, or write ` +
				`kind = "bubblewrap".`})
	}
	for _, p := range c.perTask() {
		for _, name := range spec.TaskMembers(p.text) {
			if name != memberInstruction && name != memberName {
				problems = append(problems, spec.Problem{Summary: "Member not found", Detail: fmt.Sprintf("%s has task.%s, and a "+
					"task folder has task.%s and task.%s.", p.name, name, memberInstruction, memberName)})
			}
		}
	}
	for i, name := range c.Skip {
		word, _, _ := strings.Cut(name, " --")
		if word != strings.ToUpper(word) || slices.Contains([]string{"FROM", "ENV", "WORKDIR", "COPY"}, name) {
			problems = append(problems, spec.Problem{Path: cty.GetAttrPath("skip").IndexInt(i),
				Summary: "an instruction that cannot be left out",
				Detail: fmt.Sprintf("skip has %q; expected another instruction of a Dockerfile than FROM, ENV, WORKDIR and COPY, "+
					"in capitals, such as RUN, or COPY --from.", name)})
		}
	}
	return problems
}

// CheckFiles implements environment.FileChecker: it reads the task folders.
func (c HarborConfig) CheckFiles() (notes []string, out []spec.Problem) {
	if !filepath.IsAbs(c.Tasks) { // it is not there, which is reported as of any file
		return nil, nil
	}
	found, err := readFolders(c)
	if err != nil {
		return nil, []spec.Problem{{Path: cty.GetAttrPath("tasks"), Summary: "Task folders not readable",
			Detail: err.Error() + "."}}
	}
	if images := found.images(); len(images) > 0 {
		notes = []string{fmt.Sprintf("images are not used: %s. The tasks have the programs of this machine instead; one "+
			"that needs another fails in its own words", some(images))}
	}
	for _, p := range found.problems {
		summary := "Task folder not supported"
		if p.Warning {
			summary = "Task folder"
		}
		out = append(out, spec.Problem{Path: cty.GetAttrPath("tasks"), Warning: p.Warning, Summary: summary,
			Detail: c.relative(p.String()) + "."})
	}
	if int(c.EvalTasks) >= len(found.tasks) && found.ok() {
		out = append(out, spec.Problem{Path: cty.GetAttrPath("eval_tasks"), Summary: "Too few tasks",
			Detail: fmt.Sprintf("eval_tasks = %d holds out all of the %d task folders of %s. Add folders, or write a smaller "+
				"number.", c.EvalTasks, len(found.tasks), c.relative(c.Tasks))})
	}
	return notes, append(out, c.summaries(found)...)
}

// images are the images that tasks name, each once.
func (f folders) images() []string {
	var out []string
	for _, t := range f.tasks {
		out = append(out, t.Images...)
		for _, s := range t.Steps {
			if s.Fresh != nil {
				out = append(out, s.Fresh.Images...)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// folders are the task folders of a block.
type folders struct {
	tasks    []*taskfolder.Task
	problems []taskfolder.Problem
}

// ok reports whether all tasks can be run.
func (f folders) ok() bool {
	return !slices.ContainsFunc(f.problems, func(p taskfolder.Problem) bool { return !p.Warning })
}

// mostText bounds the texts of all tasks, in bytes: they are in memory.
const mostText = 256 << 20

// readFolders reads all task folders.
func readFolders(c HarborConfig) (folders, error) {
	dirs, err := taskfolder.List(c.Tasks)
	if err != nil {
		return folders{}, err
	}
	var out folders
	named, size := map[string]string{}, 0
	for _, dir := range dirs {
		t, problems := taskfolder.Read(dir, c.Skip)
		if size += t.Size; size > mostText {
			return folders{}, fmt.Errorf("the instructions and settings of the tasks in %s have more than %d MiB together",
				c.Tasks, mostText>>20)
		}
		out.problems = append(out.problems, problems...)
		if other, ok := named[t.Name]; ok {
			out.problems = append(out.problems, taskfolder.Problem{File: filepath.Join(dir, "task.toml"),
				What: fmt.Sprintf("the task is named %s, as %s is", t.Name, filepath.Base(other))})
		}
		if need := float64(t.MemoryMB) / 1024; need > c.Sandbox.Memory {
			out.problems = append(out.problems, taskfolder.Problem{File: filepath.Join(dir, "task.toml"),
				What: fmt.Sprintf("the task needs %.4g GiB of memory, and sandbox.memory is %.4g", need, c.Sandbox.Memory)})
		}
		named[t.Name] = dir
		out.tasks = append(out.tasks, t)
	}
	return out, nil
}

// summaries are warnings about all tasks together.
func (c HarborConfig) summaries(found folders) []spec.Problem {
	var networks, late []string
	for _, t := range found.tasks {
		wants, takes := false, time.Duration(0)
		for _, s := range t.Steps {
			wants = wants || s.Agent.Network && s.Agent.Named || s.Verifier.Network && s.Verifier.Named
			takes += s.Agent.Timeout
		}
		if wants && len(c.Sandbox.Network) == 0 {
			networks = append(networks, t.Name)
		}
		if takes.Seconds() > float64(c.Budget.Seconds) {
			late = append(late, fmt.Sprintf("%s (%v)", t.Name, takes))
		}
	}
	var out []spec.Problem
	add := func(at cty.Path, names []string, summary, detail string) {
		if len(names) > 0 {
			out = append(out, spec.Problem{Path: at, Warning: true, Summary: summary,
				Detail: fmt.Sprintf(detail, some(names))})
		}
	}
	add(cty.GetAttrPath("tasks"), networks, "No network", "These tasks name a network, and get none: %s. sandbox { "+
		"network = [\"*\"] } gives it to them, with all that this machine reaches.")
	add(cty.GetAttrPath("budget").GetAttr("seconds"), late, "Less time than the task", fmt.Sprintf("budget.seconds = %d "+
		"ends an agent earlier than these tasks do: %%s.", c.Budget.Seconds))
	return out
}

const mostNames = 5

// some are the first of some names.
func some(names []string) string {
	if more := len(names) - mostNames; more > 0 {
		return strings.Join(names[:mostNames], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}

// relative is a text with paths as a person wrote them: beginning with the name of the folder of tasks.
func (c HarborConfig) relative(text string) string {
	return strings.ReplaceAll(text, filepath.Dir(filepath.Clean(c.Tasks))+string(filepath.Separator), "")
}

// harbor is the environment.
type harbor struct {
	runner
	file string // the folder of tasks
}

var (
	_ environment.Roller    = (*harbor)(nil)
	_ environment.Evaluable = (*harbor)(nil)
	_ environment.Skipper   = (*harbor)(nil)
	_ environment.Ordered   = (*harbor)(nil)
	_ environment.Closer    = (*harbor)(nil)
)

func openHarbor(ctx context.Context, setup environment.Setup[HarborConfig]) (h *harbor, err error) {
	c := setup.Config
	h = &harbor{file: c.Tasks}
	if !filepath.IsAbs(c.Tasks) {
		c.Tasks = filepath.Join(setup.RecipeDir, c.Tasks)
	}
	s := settingOf(setup, c.Program, c.Tasks)
	s.tasksDecide = true
	r, served, err := newRunner(s, c.Budget, c.Inference)
	if h.runner = r; err != nil {
		return nil, err
	}
	if h.tasks, err = h.read(c); err != nil {
		return nil, &sdk.Error{Summary: "the tasks cannot be read", Err: err, Final: true}
	}
	if err := h.clear(ctx); err != nil {
		return nil, err
	}
	python, err := interpreter.Find(setup.Block.Runtime, sdk.Packages{}, setup.RecipeDir, func(name string) string {
		if v, ok := setup.Environment[name]; ok {
			return v
		}
		return os.Getenv(name)
	})
	if err != nil {
		return nil, err
	}
	err = h.start(ctx, python, served)
	if err == nil {
		err = h.launch.box.fits(slices.Concat(h.tasks.list, h.tasks.held))
	}
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// fits finds a task whose folders the sandboxes of a block cannot have.
func (b *box) fits(all []*task) error {
	for _, t := range all {
		mounts := t.folder.Mounts("")
		for _, s := range t.folder.Steps {
			if s.Fresh != nil {
				mounts = append(mounts, s.Fresh.Mounts("")...)
			}
		}
		for _, m := range mounts {
			for _, shown := range b.spec.Mounts {
				if sandbox.Below(m.Inside, shown.Inside) {
					return &sdk.Error{Summary: fmt.Sprintf("the task %s works in %s, and the program needs %s of this machine "+
						"there", t.folder.Name, m.Inside, shown.Inside), Final: true,
						Remedy: "name another folder in the task's Dockerfile, or install the program elsewhere"}
				}
			}
		}
	}
	return nil
}

// read reads the tasks, of which the last ones are held out.
func (h *harbor) read(c HarborConfig) (*tasks, error) {
	found, err := readFolders(c)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, p := range found.problems {
		if !p.Warning {
			errs = append(errs, errors.New(p.String()))
		}
	}
	for _, t := range found.tasks {
		sets := [][]taskfolder.Variable{t.Env}
		for _, step := range t.Steps {
			sets = append(sets, step.Verifier.Env)
			if step.Fresh != nil {
				sets = append(sets, step.Fresh.Env)
			}
		}
		for _, set := range sets {
			_, err := h.resolve(set)
			if err != nil {
				err = fmt.Errorf("%s: %w", filepath.Join(t.Dir, "task.toml"), err)
			}
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	all := make([]*task, len(found.tasks))
	for i, folder := range found.tasks {
		for n := range folder.Steps {
			one, err := asTask(folder, n, i+1)
			if err != nil {
				return nil, err
			}
			for _, p := range c.perTask() {
				if problem := one.cannotFill(p.text); problem != "" {
					return nil, fmt.Errorf("%s: no program can be started with it: %s %s", folder.Dir, p.name, problem)
				}
			}
			if n == 0 {
				all[i] = one
			}
		}
	}
	list, held, ok := taskfile.Hold(all, c.EvalTasks, c.Seed)
	if !ok {
		return nil, fmt.Errorf("%s has %d task folders, and the last eval_tasks = %d of them are held out; give more "+
			"folders or lower eval_tasks", c.Tasks, len(all), c.EvalTasks)
	}
	return &tasks{list: list, held: held}, nil
}

// asTask is a step of a task folder as a line of a file of tasks.
func asTask(folder *taskfolder.Task, step, number int) (*task, error) {
	raw, err := json.Marshal(map[string]string{memberName: folder.Name,
		memberInstruction: folder.Steps[step].Instruction})
	if err != nil {
		return nil, fmt.Errorf("encode task %s: %w", folder.Name, err)
	}
	out := &task{raw: raw, line: number, folder: folder}
	return out, json.Unmarshal(raw, &out.members)
}

// Order implements environment.Ordered.
func (h *harbor) Order() string { return h.order(h.file) }

// resolve are variables of a task, with the values of the block's own for references to them.
func (s setting) resolve(set []taskfolder.Variable) (map[string]string, error) {
	out := map[string]string{}
	for _, v := range set {
		name, otherwise, has, ok := taskfolder.Template(v.Value)
		own, known := s.own[name]
		switch {
		case !ok || v.Value == taskfolder.OwnPath:
			out[v.Name] = v.Value
		case known:
			out[v.Name] = own
		case has:
			out[v.Name] = otherwise
		default:
			return nil, fmt.Errorf("the variable %s of the task is %s, which is not set; write environment_variables = { %s = "+
				"\"…\" } in the block", v.Name, v.Value, name)
		}
	}
	return out, nil
}

// Rollout implements environment.Roller.
func (h *harbor) Rollout(ctx context.Context, of environment.Task, policy *environment.Policy) error {
	return h.rollout(ctx, of, policy, h.work)
}

// work runs the agent and the tests for each step, and gives the session the task's reward.
func (h *harbor) work(ctx context.Context, r *rolling) error {
	folder := r.task.folder
	var done []map[string]float64
	stage, err := h.stage(folder, r.place)
	if err != nil {
		return &environment.InfraFailed{Err: err}
	}
	for i, step := range folder.Steps {
		if err := stage.begin(ctx, h.launch.box, h.launch.env, step); err != nil {
			return err
		}
		if err := h.agent(ctx, r, i, stage.scene); err != nil {
			return err
		}
		if i == len(folder.Steps)-1 {
			if err := r.end(ctx); err != nil { // before tests are run for nothing
				return err
			}
		}
		rewards, err := stage.judge(ctx, h.launch.box, h.launch.env, step)
		if err != nil {
			return err
		}
		if done = append(done, rewards); !step.Enough(rewards) {
			break
		}
	}
	if r.record == nil {
		if err := r.end(ctx); err != nil {
			return err
		}
	}
	score, own, err := taskfolder.Score(folder.Combine(done))
	if err != nil {
		return &environment.InfraFailed{Err: err}
	}
	metrics := r.metrics()
	if len(folder.Steps) > 1 {
		metrics["steps"] = float64(len(done))
	}
	maps.Copy(metrics, own)
	return r.session.Score(score, metrics)
}

// agent runs the agent for a step.
func (h *harbor) agent(ctx context.Context, r *rolling, number int, has scene) error {
	t, step := r.task, r.task.folder.Steps[number]
	if number > 0 {
		var err error
		if t, err = asTask(r.task.folder, number, r.task.line); err == nil {
			err = r.place.again(t)
		}
		if err != nil {
			return &environment.InfraFailed{Err: err}
		}
	}
	limit := max(r.left, time.Second) // the gateway ends what comes after all the time of a budget
	if step.Agent.Timeout > 0 {
		limit = min(limit, step.Agent.Timeout)
	}
	has.noNetwork = !step.Agent.Network
	return h.run(ctx, r, t, limit, has)
}
