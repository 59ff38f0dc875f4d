package openenv

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"sync"

	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/sdk/environment"
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
	path := c.Tasks
	if !filepath.IsAbs(path) {
		path = filepath.Join(recipeDir, path)
	}
	f, _, err := regular.Follow(path)
	if err != nil {
		return nil, fmt.Errorf("tasks: %w", err)
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for n := 1; lines.Scan(); n++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		var one map[string]any
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil || one == nil {
			return nil, fmt.Errorf("tasks: %s:%d: want an object of parameters of reset, got %s", path, n,
				brief(lines.Bytes()))
		}
		t.list = append(t.list, one)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("tasks: read %s: %w", path, err)
	}
	keep := len(t.list) - int(c.EvalTasks)
	if keep < 1 {
		return nil, fmt.Errorf("tasks: %s has %d lines, and the last eval_tasks = %d of them are held out; give more "+
			"lines or lower eval_tasks", path, len(t.list), c.EvalTasks)
	}
	t.list, t.held = t.list[:keep], t.list[keep:]
	rng := rand.New(rand.NewPCG(uint64(c.Seed), 1))
	rng.Shuffle(keep, func(i, j int) { t.list[i], t.list[j] = t.list[j], t.list[i] })
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
