package evaluation

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/recipe-rl/recipe/internal/samples"
	"github.com/recipe-rl/recipe/sdk"
)

const (
	recordBytes = 256 << 20 // of one evaluation on disk
	recordsKept = 20        // of the evaluations of one run, the newest
)

// Record is a record of an evaluation's completions in a run directory, in which the views of the run find them. nil
// records nothing.
type Record struct {
	Dir         string
	environment string
	w           *samples.Writer
	err         error // the first write that failed; read after Close
}

// NewRecord begins a record in the run directory, of the environment of this name. It removes the oldest records of
// evaluations beyond those that are kept.
func NewRecord(runDir, environment string, now time.Time) (*Record, error) {
	folder := filepath.Join(runDir, "samples")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("create the record of an evaluation: %w", err)
	}
	if err := dropOldest(folder); err != nil {
		return nil, err
	}
	name := samples.EvaluationFolder(now.UTC().Format("20060102T150405.000000Z") + "." + environment)
	r := &Record{Dir: filepath.Join(folder, name), environment: environment + " (held out)"}
	var err error
	r.w, err = samples.NewWriter(r.Dir, samples.Limits{Bytes: recordBytes}, func(err error) { r.err = err })
	return r, err
}

// dropOldest makes room for one more record of an evaluation.
func dropOldest(folder string) error {
	entries, err := os.ReadDir(folder) // by name, and so by time
	if err != nil {
		return fmt.Errorf("list the records of evaluations: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && samples.OfEvaluation(e.Name()) {
			names = append(names, e.Name())
		}
	}
	for len(names) >= recordsKept {
		if err := os.RemoveAll(filepath.Join(folder, names[0])); err != nil {
			return fmt.Errorf("remove the oldest record of an evaluation: %w", err)
		}
		names = names[1:]
	}
	return nil
}

// Add records the completions of a task.
func (r *Record) Add(t sdk.TaskScore) {
	if r == nil || len(t.Group) == 0 {
		return
	}
	var g struct {
		Tokens []json.RawMessage `json:"tokens"`
	}
	if json.Unmarshal(t.Group, &g) != nil {
		return
	}
	number := uint64(max(0, t.Task)) + 1
	line := samples.Line{ID: number, Environment: r.environment, Sequences: len(g.Tokens), Versions: t.Versions}
	for _, text := range g.Tokens {
		var ids []int
		if json.Unmarshal(text, &ids) == nil {
			line.Tokens, line.Longest = line.Tokens+len(ids), max(line.Longest, len(ids))
		}
	}
	r.w.Post(line, t.Group)
}

// Close writes what is left. The error is the first of the record.
func (r *Record) Close() error {
	if r == nil {
		return nil
	}
	if err := r.w.Close(); err != nil {
		return err
	}
	return r.err
}
