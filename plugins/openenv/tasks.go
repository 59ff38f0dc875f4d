package openenv

import (
	"encoding/json"
	"fmt"
	"maps"
	"sync"

	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/kit/taskfile"
)

// heldOutSeeds is where the seeds of the held-out set begin.
const heldOutSeeds = 1_000_000_000

// tasks are the parameters of reset, one after the other.
type tasks struct {
	config Config
	list   []map[string]any // of the file; nil: the tasks are seeds
	held   []map[string]any

	mu    sync.Mutex
	given int64
}

func newTasks(c Config, recipeDir string) (*tasks, error) {
	t := &tasks{config: c}
	if c.Tasks == "" {
		return t, nil
	}
	var err error
	t.list, t.held, err = taskfile.Read(c.Tasks, recipeDir, c.EvalTasks, c.Seed,
		func(_ int, text []byte) (one map[string]any, err error) {
			if err := json.Unmarshal(text, &one); err != nil || one == nil {
				return nil, fmt.Errorf("want an object of parameters of reset, got %s", brief(text))
			}
			return one, nil
		})
	if err != nil {
		return nil, err
	}
	return t, nil
}

func (t *tasks) next() environment.Task {
	t.mu.Lock()
	n := t.given
	t.given++
	t.mu.Unlock()
	if t.list == nil {
		return t.task(map[string]any{"seed": t.config.Seed + n})
	}
	return t.task(t.list[n%int64(len(t.list))])
}

func (t *tasks) heldOut() []environment.Task {
	var out []environment.Task
	for _, one := range t.held {
		out = append(out, t.task(one))
	}
	for n := int64(0); t.list == nil && n < t.config.EvalTasks; n++ {
		out = append(out, t.task(map[string]any{"seed": heldOutSeeds + n}))
	}
	return out
}

// task is one with the parameters that all have.
func (t *tasks) task(own map[string]any) environment.Task {
	parameters := maps.Clone(t.config.Reset)
	if parameters == nil {
		parameters = map[string]any{}
	}
	maps.Copy(parameters, own)
	return environment.Task{Data: parameters}
}
