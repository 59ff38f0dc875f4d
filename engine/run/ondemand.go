package run

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/engine/evaluation"
	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/run/lifecycle"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// Evaluation is what an environment measured when it was asked to.
type Evaluation struct {
	Address       addr.Block         `json:"address"`
	PolicyVersion int64              `json:"policy_version"` // the oldest that answered
	Metrics       map[string]float64 `json:"metrics"`
	// Samples is the record of every completion in the run directory; empty: there is none.
	Samples string `json:"samples_folder,omitempty"`
}

// Saved is a checkpoint that a trainer wrote when it was asked to.
type Saved struct {
	Address       addr.Block `json:"address"`
	Path          string     `json:"path"`
	Step          int64      `json:"step"`
	PolicyVersion int64      `json:"policy_version"`
}

// Evaluate makes an environment evaluate the served policy on its held-out set, on at most limit tasks of it; 0: on
// all. It returns when that is done or ctx ends, which ends the evaluation too.
func (e *Engine) Evaluate(ctx context.Context, a addr.Block, limit int) (*Evaluation, error) {
	if limit < 0 {
		return nil, fmt.Errorf("the limit is %d; expected 0 (the whole held-out set) or a number of tasks",
			limit)
	}
	proc, err := e.readyProcess(ctx, a, kind.Environment, "evaluate")
	if err != nil {
		return nil, err
	}
	metrics, scores, err := proc.Evaluate(ctx, limit)
	if err != nil {
		return nil, e.orderFailed(a, err,
			"evaluate on demand: its plugin has no evaluation or no held-out set")
	}
	for name, v := range metrics {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("the evaluation of %s returned %s = %v, which is not a number", a, name, v)
		}
	}
	return &Evaluation{Address: a, PolicyVersion: scores.PolicyVersion, Metrics: metrics,
		Samples: e.recorded(a, scores.Results)}, nil
}

// recorded keeps the completions of an evaluation and returns the folder. An evaluation is not worth less without it.
func (e *Engine) recorded(a addr.Block, results []sdk.TaskScore) string {
	if len(results) == 0 {
		return ""
	}
	var record *evaluation.Record
	dir, err := filepath.Abs(string(e.opts.Dir)) // who asks may be in another folder
	if err == nil {
		record, err = evaluation.NewRecord(dir, a.Name, time.Now())
	}
	if err == nil {
		for _, t := range results {
			record.Add(t)
		}
		err = record.Close()
	}
	if err != nil {
		e.append(event.Event{Type: event.Notice, Address: a.String(), Level: "warn",
			Message: "the samples of an evaluation are not recorded: " + err.Error()})
		return ""
	}
	return record.Dir
}

// Checkpoint makes a trainer write a checkpoint now, between two of its steps, and returns when it is on the disk.
func (e *Engine) Checkpoint(ctx context.Context, a addr.Block) (*Saved, error) {
	proc, err := e.readyProcess(ctx, a, kind.Trainer, "checkpoint")
	if err != nil {
		return nil, err
	}
	c, err := proc.Checkpoint(ctx)
	if err != nil {
		return nil, e.orderFailed(a, err,
			"save a checkpoint on demand: its plugin saves when it chooses to; `recipe stop` makes it save a last one")
	}
	return &Saved{Address: a, Path: c.Path, Step: c.Step, PolicyVersion: c.Version}, nil
}

// readyProcess is the process of a block of one kind, which can be told to do something now. The error says why there
// is none.
func (e *Engine) readyProcess(ctx context.Context, a addr.Block, want kind.Kind,
	command string) (proc Process, err error) {
	err = e.ask(ctx, func(s *supervisor) error {
		b := s.blocks[a]
		switch {
		case b == nil:
			return fmt.Errorf("there is no block %s in this run%s", a, s.namesOf(want))
		case a.Kind != want:
			return fmt.Errorf("recipe %s takes the address of a block of kind %s; %s is of kind %s%s", command, want, a,
				a.Kind, s.namesOf(want))
		case b.Stage == lifecycle.Checked:
			return fmt.Errorf("%s is external: the engine only checks that it answers", a)
		case b.Phase != sdk.Ready && b.Phase != sdk.Degraded:
			return fmt.Errorf("%s is %s; recipe %s needs it to be ready (see recipe status)", a,
				b.Phase, command)
		case !b.HasProcess() || b.attempt.proc.Load() == nil:
			return fmt.Errorf("%s has no process at the moment; try again (see recipe status)", a)
		}
		proc = *b.attempt.proc.Load()
		return nil
	})
	return proc, err
}

// namesOf lists the blocks of a kind, for a message about an address that does not fit.
func (s *supervisor) namesOf(k kind.Kind) string {
	var names []string
	for a := range s.blocks {
		if a.Kind == k {
			names = append(names, a.String())
		}
	}
	if len(names) == 0 {
		return fmt.Sprintf(" (it has no %s)", k)
	}
	slices.Sort(names)
	return fmt.Sprintf(" (its blocks of kind %s: %s)", k, strings.Join(names, ", "))
}

// orderFailed is the error of an order to a block, without secrets.
func (e *Engine) orderFailed(a addr.Block, err error, unsupported string) error {
	if errors.Is(err, host.ErrUnsupported) {
		return fmt.Errorf("%s cannot %s", a, unsupported)
	}
	return errors.New(e.scrub(err.Error()))
}
