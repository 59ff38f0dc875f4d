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
)

//go:embed python/recipe_agent/*.py
var code embed.FS

// Plugin defines `environment "agent"`.
func Plugin() *sdk.Definition {
	return environment.DefineRollouts("agent", "A program that asks the policy by base URL and key, and a reward for it.",
		open, sdk.WithDoc("Each rollout is one run of a program: an agent, or a loop of your own. It needs no import of "+
			"recipe. docs/environments/agent.md explains it."))
}

// world is the environment.
type world struct {
	config   Config
	log      func(level, message string)
	tasks    *tasks
	judge    *script.Judge
	launch   launcher
	folder   string // of rollouts
	programs *semaphore.Weighted
}

var (
	_ environment.Roller    = (*world)(nil)
	_ environment.Evaluable = (*world)(nil)
	_ environment.Skipper   = (*world)(nil)
	_ environment.Ordered   = (*world)(nil)
	_ environment.Closer    = (*world)(nil)
	_ environment.Monitored = (*world)(nil)
)

func open(ctx context.Context, setup environment.Setup[Config]) (w *world, err error) {
	c := setup.Config
	w = &world{config: c, log: setup.Log, folder: filepath.Join(setup.Dir, "rollouts"),
		programs: semaphore.NewWeighted(c.Programs)}
	var served outputs.Inference
	if err := c.Inference.Decode(&served); err != nil {
		return nil, err
	}
	if served.ControlURL == "" {
		return nil, &sdk.Error{Summary: "the inference block has no gateway, which keeps what a program does with the policy",
			Final: true, Remedy: `let inference name a block of recipe's own, such as inference "vllm", not an external server`}
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
	if w.launch, err = newLauncher(ctx, w.judge.Python(), served.Model, w.folder, setup); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	if w.launch.box, err = openBox(ctx, &w.launch, w.judge.Python(), served.ControlURL, setup); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	w.log("info", fmt.Sprintf("%d tasks, %d of them held out", len(w.tasks.list)+len(w.tasks.held), len(w.tasks.held)))
	return w, nil
}

// clear ends what an earlier life of the block has left running, and removes its folders.
func (w *world) clear(ctx context.Context) error {
	if err := proc.KillMarked(ctx, mark(w.folder)); err != nil {
		return fmt.Errorf("end the programs of an earlier attempt: %w", err)
	}
	if err := temporary.Remove(filepath.Join(w.folder, running)); err != nil {
		return fmt.Errorf("remove the folders of an earlier attempt: %w", err)
	}
	return nil
}

// Close ends the reward's program, and the way of sandboxes to the gateway.
func (w *world) Close() error { return errors.Join(w.launch.box.Close(), w.judge.Close()) }

// Failed implements environment.Monitored.
func (w *world) Failed() <-chan struct{} { return w.judge.Failed() }

// Err implements environment.Monitored.
func (w *world) Err() error { return w.judge.Err() }

// Next implements environment.Roller.
func (w *world) Next(context.Context) (environment.Task, error) { return w.tasks.next(), nil }

// Skip implements environment.Skipper.
func (w *world) Skip(_ context.Context, n int64) error {
	w.tasks.skip(n)
	return nil
}

// Order implements environment.Ordered.
func (w *world) Order() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d", w.config.Tasks, w.config.EvalTasks, w.config.Seed))
	return hex.EncodeToString(sum[:8])
}

// EvaluationTasks implements environment.Evaluable.
func (w *world) EvaluationTasks(context.Context) ([]environment.Task, error) {
	out := make([]environment.Task, len(w.tasks.held))
	for i, t := range w.tasks.held {
		out[i] = t.task()
	}
	return out, nil
}

// Rollout implements environment.Roller.
func (w *world) Rollout(ctx context.Context, of environment.Task, policy *environment.Policy) (err error) {
	t, ok := of.Data.(*task)
	if !ok {
		return fmt.Errorf("the task holds %T, which is no task of this environment", of.Data)
	}
	if err := w.programs.Acquire(ctx, 1); err != nil {
		return err
	}
	defer w.programs.Release(1)
	s, err := policy.Session(ctx, "", t.name(), w.config.Budget)
	if err != nil {
		return err
	}
	place, err := newPlace(w.folder, t)
	if err != nil {
		return &environment.InfraFailed{Err: err}
	}
	defer func() {
		if w.config.Keep == "all" || w.config.Keep == "failed" && err != nil && ctx.Err() == nil {
			err = errors.Join(err, place.keep(w.folder))
			return
		}
		if removed := temporary.Remove(place.dir); removed != nil {
			w.log("warn", fmt.Sprintf("remove the folder of a rollout: %v", removed))
		}
	}()
	ended, err := w.launch.run(ctx, place, t, s, time.Duration(w.config.Budget.Seconds)*time.Second)
	if err != nil {
		return err
	}
	record, err := s.End(ctx)
	if err != nil {
		return ended.explain(err)
	}
	return w.score(ctx, t, s, place, ended, record)
}

// score has the reward function judge the rollout.
func (w *world) score(ctx context.Context, t *task, s *environment.Session, place *place, ended *ended,
	record *environment.SessionRecord) error {
	metrics := map[string]float64{"calls": float64(record.Calls), "sequences": float64(record.Sequences),
		"untrained_tokens": float64(record.Untrained), "seconds": ended.took.Seconds(), "truncated": 0}
	if record.Truncated != "" || ended.late {
		metrics["truncated"] = 1
	}
	score, own, err := w.judge.Score(ctx, map[string]any{"task": t.raw, "folder": place.work(),
		"transcript": record.Messages, "exit_code": ended.code, "metrics": metrics})
	if err != nil {
		return &inFolder{err, place.work()}
	}
	maps.Copy(metrics, own)
	return s.Score(score, metrics)
}
