package environment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/internal/regular"
)

// Skipper is an environment that passes over tasks faster than by calling Next for each.
type Skipper interface {
	// Skip leaves out the next n tasks. It is called before Next, when a block goes on after a stop or a crash.
	Skip(ctx context.Context, n int64) error
}

// Ordered is an environment whose order of tasks depends on settings. A place is kept only as long as they are the
// same.
type Ordered interface {
	// Order names what the order depends on, such as the data set and the seed.
	Order() string
}

// maxPlace is how many bytes a place may have: keptSteps entries of some 50 bytes, and what its order names.
const maxPlace = 1 << 20

// keptSteps are the trainer's last steps for which it is known how many tasks they have used.
const keptSteps = 1024

// used is how many tasks the batches up to a step have used.
type used struct {
	Step  int   `json:"step"`
	Tasks int64 `json:"tasks"`
}

// placeFile is how far the tasks of an environment are used, in a file of its block.
type placeFile struct {
	Version int    `json:"version"`
	Order   string `json:"order,omitempty"`
	Settled int64  `json:"settled"` // no task before this one is being worked on
	Used    []used `json:"used"`    // by step, rising
}

// place counts the tasks of an environment, and keeps across its lives how many the trainer has used. Groups that wait
// in the trajectory API outlive the block, so a task counts as used when its group is posted or left out.
type place struct {
	path string
	mu   sync.Mutex
	kept placeFile
	next int64          // number of the next task
	open map[int64]bool // tasks that are being worked on

	written time.Time
	pause   time.Duration
	changed bool
	resumed bool // kept is of this life
}

// openPlace reads a place; one of another order, or that cannot be read, is forgotten.
func openPlace(path, order string, log func(level, message string)) *place {
	p := &place{path: path, open: map[int64]bool{}}
	data, err := regular.ReadFile(path, maxPlace)
	if err == nil {
		err = json.Unmarshal(data, &p.kept)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log("warn", fmt.Sprintf("which tasks were used is not known, so they begin anew: %v", err))
	}
	if err == nil && p.kept.Order != order && len(p.kept.Used) > 0 {
		log("warn", "settings have changed on which the order of the tasks may depend, so the tasks begin anew: some that "+
			"were trained on come again")
	}
	if err != nil || p.kept.Order != order || p.kept.Version != 1 {
		p.kept = placeFile{Version: 1, Order: order}
	}
	return p
}

// resume returns how many tasks to skip where the trainer goes on at a step with so many groups still waiting, and
// forgets what later steps have used.
func (p *place) resume(step, waiting int) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := int64(0)
	p.kept.Used = slices.DeleteFunc(p.kept.Used, func(u used) bool { return u.Step > step })
	if n := len(p.kept.Used); n > 0 && step > 0 {
		at = p.kept.Used[n-1].Tasks
		at += min(int64(waiting), max(0, p.kept.Settled-at))
	}
	p.next, p.kept.Settled, p.resumed = at, at, true
	return at
}

// begin returns the number of the next task, from 1.
func (p *place) begin() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	p.open[p.next] = true
	return p.next
}

// end notes that a task's group is posted or left out.
func (p *place) end(task int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if task == 0 {
		return
	}
	delete(p.open, task)
	settled := p.next
	for open := range p.open {
		settled = min(settled, open-1)
	}
	p.changed = p.changed || settled != p.kept.Settled
	p.kept.Settled = settled
}

// at notes the trainer's step, while so many groups wait.
func (p *place) at(step, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.resumed {
		return
	}
	tasks := max(0, p.kept.Settled-int64(waiting))
	last := len(p.kept.Used) - 1
	switch {
	case last >= 0 && p.kept.Used[last].Step == step:
		if p.kept.Used[last].Tasks >= tasks {
			return
		}
		p.kept.Used[last].Tasks = tasks
	default:
		p.kept.Used = append(p.kept.Used, used{step, tasks})
		p.kept.Used = p.kept.Used[max(0, len(p.kept.Used)-keptSteps):]
	}
	p.changed = true
}

// save writes the place, if it has changed, once a second or now.
func (p *place) save(now bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.changed || !now && time.Since(p.written) < p.pause {
		return nil
	}
	p.written = time.Now()
	p.pause = min(max(time.Second, 2*p.pause), time.Minute) // of a disk that is full
	if err := writeWhole(p.path, p.kept); err != nil {
		return fmt.Errorf("keep which tasks were used: %w", err)
	}
	p.changed, p.pause = false, time.Second
	return nil
}

// writeWhole writes a value as JSON, whole or not at all.
func writeWhole(path string, v any) error {
	data, err := json.Marshal(v)
	if err == nil {
		err = regular.WriteFile(path+".new", data)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	return err
}

// settleDown goes on behind the tasks that the trainer has used. Where the API has not said how many groups wait, their
// tasks come again.
func (r *rollouts) settleDown(ctx context.Context) error {
	n := r.place.resume(r.step, r.queued)
	if r.order != nil {
		r.order.tasks = n
	}
	err := r.skip(ctx, n)
	if errors.Is(err, EOF) {
		r.finished = true
		r.stages.finished()
		return nil
	}
	if err != nil {
		return fmt.Errorf("skip the tasks that were used: %w", err)
	}
	return nil
}

// skip leaves out the tasks that earlier lives of the block have used.
func (r *rollouts) skip(ctx context.Context, n int64) error {
	if n == 0 {
		return nil
	}
	r.host.Log("info", fmt.Sprintf("the trainer goes on at step %d: the first %d tasks, which it has used, are skipped",
		r.step, n))
	if s, ok := r.source.(Skipper); ok {
		return s.Skip(ctx, n)
	}
	for range n {
		task, err := r.roller.next(ctx)
		if err != nil {
			return err
		}
		if task.Release != nil {
			task.Release()
		}
	}
	return nil
}
