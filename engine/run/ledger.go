package run

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/recipe-rl/recipe/internal/evaluated"
	"github.com/recipe-rl/recipe/schema/addr"
)

// ledger has the results of the evaluations for the trainers, which find them beside their checkpoints. The evaluators
// put them in, and the supervisor writes them before a trainer starts.
type ledger struct {
	mu sync.Mutex
	of map[addr.Block]map[string]evaluated.Evaluation // by trainer and name
}

// record gives the trainer the results of the evaluation. A trainer that begins from scratch finds none when it starts:
// the results belong to other weights.
func (v *evaluator) record() {
	e := evaluated.Evaluation{Name: v.Name, Metric: v.Main(), Every: v.schedule.Every, Period: v.schedule.Period,
		Done: v.done, Results: []evaluated.Result{}}
	for _, r := range v.results {
		e.Results = append(e.Results, evaluated.Result{Due: r.Due, Step: r.Step, Version: r.Version, Metrics: r.Metrics()})
	}
	if err := v.ledger.put(v, e); err != nil {
		v.e.notice("warn", fmt.Sprintf("evaluation.%s: %v: %s may not keep its best checkpoints", v.Name, err, v.trainer))
	}
}

// put has the results of an evaluation and writes them, unless the trainer is to begin from scratch.
func (l *ledger) put(v *evaluator, e evaluated.Evaluation) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[addr.Block]map[string]evaluated.Evaluation{}
	}
	if l.of[v.trainer] == nil {
		l.of[v.trainer] = map[string]evaluated.Evaluation{}
	}
	if v.anew.Load() {
		l.of[v.trainer][v.Name] = without(e)
		return nil // the folder still has the checkpoints of the weights before
	}
	l.of[v.trainer][v.Name] = e
	folder := absolute(v.e.opts.Dir.Checkpoints(v.trainer))
	if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		return nil // it is written when the trainer starts
	}
	return l.file(v.trainer).Write(folder)
}

// forget takes out the results of a trainer that begins from scratch. They are written when it starts.
func (l *ledger) forget(trainer addr.Block, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.of[trainer][name]; ok {
		l.of[trainer][name] = without(e)
	}
}

// write writes the results for a trainer that starts. Without evaluations in the recipe it removes the file.
func (l *ledger) write(trainer addr.Block, folder string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.of[trainer]) == 0 {
		return evaluated.Remove(folder)
	}
	return l.file(trainer).Write(folder)
}

func (l *ledger) file(trainer addr.Block) evaluated.File {
	return evaluated.File{Evaluations: slices.Collect(maps.Values(l.of[trainer]))}
}

// without is an evaluation that has no results yet.
func without(e evaluated.Evaluation) evaluated.Evaluation {
	e.Done, e.Results = -1, []evaluated.Result{}
	return e
}
