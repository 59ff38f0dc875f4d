package arithmetic

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/environment"
)

// Config is the body of `environment "arithmetic" "name"`.
type Config struct {
	environment.Settings
	Seed int64 `recipe:"seed" default:"0" doc:"Order in which the problems come."`
}

// SamplingSeed implements environment.Seeded.
func (c Config) SamplingSeed() int64 { return c.Seed }

// Repeats implements environment.Seeded.
func (Config) Repeats() bool { return true }

// Definition defines `environment "arithmetic"`. Any model that reads plain text can be given its problems; the model
// of package tiny was warmed up on them.
func Definition() *sdk.Definition {
	// What suits this task, where it differs from most. Groups whose scores are all equal are sent too: they cost the
	// trainer next to nothing, and its reward is then that of all problems.
	return environment.Define("arithmetic", "Additions of two numbers below 50, with a held-out split.", open,
		sdk.WithDoc("Each problem is a text such as 07+35= and each answer is right or wrong. A fifth of the problems is "+
			"kept back for evaluation and never trained on."),
		sdk.WithDefault("group_size", "16"), sdk.WithDefault("max_tokens", strconv.Itoa(MaxTokens)),
		sdk.WithDefault("drop_uninformative", "false"))
}

// additions gives the problems of the training split, every one once before any comes again.
type additions struct {
	mu   sync.Mutex
	list []Problem
	next int
}

var (
	_ environment.Environment = (*additions)(nil)
	_ environment.Evaluable   = (*additions)(nil)
	_ environment.Restorer    = (*additions)(nil)
)

func open(_ context.Context, setup environment.Setup[Config]) (*additions, error) {
	a := &additions{list: Problems(Train)}
	rng := rand.New(rand.NewPCG(uint64(setup.Config.Seed), 1))
	rng.Shuffle(len(a.list), func(i, j int) { a.list[i], a.list[j] = a.list[j], a.list[i] })
	return a, nil
}

func task(p Problem) environment.Task {
	return environment.Task{Prompt: p.Prompt(), Expected: p.Answer(), Data: p}
}

// Next is the next problem of the training split.
func (a *additions) Next(context.Context) (environment.Task, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.list[a.next]
	a.next = (a.next + 1) % len(a.list)
	return task(p), nil
}

// Score is 1 for the right answer, complete, and 0 for anything else.
func (a *additions) Score(_ context.Context, t environment.Task, c environment.Completion) (float64, error) {
	p, ok := t.Data.(Problem)
	if !ok {
		return 0, fmt.Errorf("score a completion: the task holds %T, not a problem of this environment", t.Data)
	}
	return p.Score(c.Text, c.Finish == "stop"), nil
}

// Restore implements environment.Restorer.
func (a *additions) Restore(_ context.Context, t environment.Task, data json.RawMessage) (environment.Task, error) {
	return environment.RestoreData[Problem](t, data)
}

// EvaluationTasks are the held-out problems.
func (a *additions) EvaluationTasks(context.Context) ([]environment.Task, error) {
	var tasks []environment.Task
	for _, p := range Problems(HeldOut) {
		tasks = append(tasks, task(p))
	}
	return tasks, nil
}
