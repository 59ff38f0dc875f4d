// Package agent is `environment "agent"`: rollouts of a program that knows nothing of training. It speaks to the policy
// by a base URL and a key, and a reward function judges what it has done.
package agent

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/recipe-rl/recipe/internal/temporary"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/kit/script"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/proc"
	"github.com/recipe-rl/recipe/sdk/spec"
)

//go:embed python/recipe_agent/*.py
var code embed.FS

// Plugin defines `environment "agent"`.
func Plugin() *sdk.Definition {
	return environment.DefineRollouts("agent", "A program that asks the policy by base URL and key, and a reward for it.",
		open, sdk.WithDoc("Each rollout is one run of a program: an agent, or a loop of your own. It needs no import of "+
			"recipe. docs/environments/agent.md explains it."))
}

// runner starts the programs of a block's rollouts: what its environments have in common.
type runner struct {
	setting
	budget environment.BudgetSettings
	tasks  *tasks
	launch launcher
	folder string // of rollouts
	slots  *semaphore.Weighted
}

// world is the environment.
type world struct {
	runner
	file  string // of the tasks
	judge *script.Judge
}

var (
	_ environment.Roller    = (*world)(nil)
	_ environment.Evaluable = (*world)(nil)
	_ environment.Skipper   = (*world)(nil)
	_ environment.Ordered   = (*world)(nil)
	_ environment.Closer    = (*world)(nil)
	_ environment.Monitored = (*world)(nil)
)

// newRunner is a block that starts nothing yet, and what its inference block serves.
func newRunner(s setting, budget environment.BudgetSettings, inference spec.Ref) (runner, outputs.Inference, error) {
	p := runner{setting: s, budget: budget, folder: filepath.Join(s.dir, "rollouts"),
		slots: semaphore.NewWeighted(s.Programs)}
	var served outputs.Inference
	if err := inference.Decode(&served); err != nil {
		return p, served, err
	}
	if served.ControlURL == "" {
		return p, served, &sdk.Error{Summary: "the inference block has no gateway, which keeps what a program does with " +
			"the policy", Final: true,
			Remedy: `let inference name a block of recipe's own, such as inference "vllm", not an external server`}
	}
	return p, served, nil
}

func open(ctx context.Context, setup environment.Setup[Config]) (w *world, err error) {
	c := setup.Config
	w = &world{file: c.Tasks}
	var served outputs.Inference
	if w.runner, served, err = newRunner(settingOf(setup, c.Program, answerFiles(c.Tasks, c.Reward)...), c.Budget,
		c.Inference); err != nil {
		return nil, err
	}
	if w.tasks, err = readTasks(c, setup.RecipeDir); err != nil {
		return nil, &sdk.Error{Summary: "the tasks cannot be read", Err: err, Final: true}
	}
	if err := w.clear(ctx); err != nil {
		return nil, err
	}
	w.judge, err = script.OpenJudge(ctx, "agent", script.Source{Tree: script.Folder(code, "python"),
		Module: "recipe_agent.reward"}, c.Reward, setup)
	if err != nil {
		return nil, err
	}
	if err := w.start(ctx, w.judge.Python(), served); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// start finds the program, and a way of making sandboxes for it.
func (p *runner) start(ctx context.Context, python string, served outputs.Inference) (err error) {
	if p.launch, err = newLauncher(ctx, python, served.Model, p.folder, p.setting); err != nil {
		return err
	}
	if p.launch.box, err = openBox(ctx, &p.launch, python, served.ControlURL, p.setting); err != nil {
		return err
	}
	p.log("info", fmt.Sprintf("%d tasks, %d of them held out", len(p.tasks.list)+len(p.tasks.held), len(p.tasks.held)))
	return nil
}

// clear ends what an earlier life of the block has left running, and removes its folders.
func (p *runner) clear(ctx context.Context) error {
	if err := proc.KillMarked(ctx, mark(p.folder)); err != nil {
		return fmt.Errorf("end the programs of an earlier attempt: %w", err)
	}
	if err := temporary.Remove(filepath.Join(p.folder, running)); err != nil {
		return fmt.Errorf("remove the folders of an earlier attempt: %w", err)
	}
	return nil
}

// Close ends the way of sandboxes to the gateway.
func (p *runner) Close() error { return p.launch.box.Close() }

// Close ends the reward's program, and the way of sandboxes to the gateway.
func (w *world) Close() error { return errors.Join(w.runner.Close(), w.judge.Close()) }

// Failed implements environment.Monitored.
func (w *world) Failed() <-chan struct{} { return w.judge.Failed() }

// Err implements environment.Monitored.
func (w *world) Err() error { return w.judge.Err() }

// Next implements environment.Roller.
func (p *runner) Next(context.Context) (environment.Task, error) { return p.tasks.next(), nil }

// Skip implements environment.Skipper.
func (p *runner) Skip(_ context.Context, n int64) error {
	p.tasks.skip(n)
	return nil
}

// order is what decides in which order the tasks of a file or folder come.
func (p *runner) order(tasks string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d", tasks, p.EvalTasks, p.Seed))
	return hex.EncodeToString(sum[:8])
}

// EvaluationTasks implements environment.Evaluable.
func (p *runner) EvaluationTasks(context.Context) ([]environment.Task, error) {
	out := make([]environment.Task, len(p.tasks.held))
	for i, t := range p.tasks.held {
		out[i] = t.task()
	}
	return out, nil
}

// Order implements environment.Ordered.
func (w *world) Order() string { return w.order(w.file) }

// Rollout implements environment.Roller.
func (w *world) Rollout(ctx context.Context, of environment.Task, policy *environment.Policy) error {
	return w.rollout(ctx, of, policy, w.work)
}

// rolling is one rollout.
type rolling struct {
	task    *task
	place   *place
	session *environment.Session
	left    time.Duration // for the program
	ended   *ended        // the program that was started last
	record  *environment.SessionRecord
}

// metrics are those of every rollout.
func (r *rolling) metrics() map[string]float64 {
	out := map[string]float64{"calls": float64(r.record.Calls), "sequences": float64(r.record.Sequences),
		"untrained_tokens": float64(r.record.Untrained), "seconds": r.ended.took.Seconds(), "truncated": 0}
	if r.record.Truncated != "" || r.ended.late {
		out["truncated"] = 1
	}
	return out
}

// run runs the program, in what time is left.
func (p *runner) run(ctx context.Context, r *rolling, t *task, limit time.Duration, has scene) (err error) {
	before := time.Duration(0)
	if r.ended != nil {
		before = r.ended.took
	}
	if r.ended, err = p.launch.run(ctx, r.place, t, r.session, limit, has); err != nil {
		return err
	}
	r.left -= r.ended.took
	r.ended.took += before
	return nil
}

// end ends the session: no program is left that could use it.
func (r *rolling) end(ctx context.Context) (err error) {
	if r.record, err = r.session.End(ctx); err != nil {
		return r.ended.explain(err)
	}
	return nil
}

// rollout gets what a rollout needs; work runs the program, and gives the session its score.
func (p *runner) rollout(ctx context.Context, of environment.Task, policy *environment.Policy,
	work func(context.Context, *rolling) error) (err error) {
	t, ok := of.Data.(*task)
	if !ok {
		return fmt.Errorf("the task holds %T, which is no task of this environment", of.Data)
	}
	if err := p.slots.Acquire(ctx, 1); err != nil {
		return err
	}
	defer p.slots.Release(1)
	r := &rolling{task: t, left: time.Duration(p.budget.Seconds) * time.Second}
	if r.session, err = policy.Session(ctx, "", t.name(), p.budget); err != nil {
		return err
	}
	if r.place, err = newPlace(p.folder, t); err != nil {
		return &environment.InfraFailed{Err: err}
	}
	defer func() {
		if p.Keep == "all" || p.Keep == "failed" && err != nil && ctx.Err() == nil {
			err = errors.Join(err, r.place.keep(p.folder))
			return
		}
		if removed := temporary.Remove(r.place.dir); removed != nil {
			p.log("warn", fmt.Sprintf("remove the folder of a rollout: %v", removed))
		}
	}()
	return work(ctx, r)
}

// work runs the program once, and has the reward function judge what it has done.
func (w *world) work(ctx context.Context, r *rolling) error {
	if err := w.run(ctx, r, r.task, r.left, scene{}); err != nil {
		return err
	}
	if err := r.end(ctx); err != nil {
		return err
	}
	metrics := r.metrics()
	score, own, err := w.judge.Score(ctx, map[string]any{"task": r.task.raw, "folder": r.place.work(),
		"transcript": r.record.Messages, "exit_code": r.ended.code, "metrics": metrics})
	if err != nil {
		return &inFolder{err, r.place.work()}
	}
	maps.Copy(metrics, own)
	return r.session.Score(score, metrics)
}
