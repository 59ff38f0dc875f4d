package remote

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/engine/agent"
	"github.com/recipe-rl/recipe/sdk/executor"
)

const (
	// gangGrace is how long the blocks of a gang may take to end in order when another of them has failed: a trainer
	// writes a checkpoint.
	gangGrace = time.Minute
	// gangPatience is how long their attempts may take to be over after that.
	gangPatience = time.Minute
)

// Together submits the jobs of a gang at once, when the first of its blocks is to start. Its Submit, and later those of
// the others, take over the jobs: until then their agents wait. What runs of an earlier attempt of the gang is ended
// before: a cluster that gives machines to all of its jobs together takes them back together. Jobs that wait since an
// earlier engine, or since the start of another block, stay. Executors that know no gangs submit each job by itself, as
// do those that stage files.
func (h *Hub) Together(ctx context.Context, specs []Spec, open Open, report func(string)) error {
	x, err := open(specs[0].Executor)
	if err != nil {
		return fmt.Errorf("open %s: %w", specs[0].Executor.Block, err)
	}
	gangs, ok := executor.As[executor.Gangs](x)
	if !ok || specs[0].Executor.Staged() {
		return nil
	}
	h.gangs.Lock()
	defer h.gangs.Unlock()
	if r, err := readRecord(specs[0].Dir); err == nil && r.waits(specs[0]) && r.Handle.ID != "" {
		if now, err := executor.Settled(ctx, x, r.Handle); err != nil || !now.State.Over() {
			return err
		}
	}
	attempt, err := h.endGang(ctx, specs, open)
	if err != nil {
		return fmt.Errorf("end the jobs of gang %s: %w", specs[0].Gang, err)
	}
	for i := range specs {
		specs[i].Attempt = attempt
	}
	_, near := executor.As[executor.OnThisMachine](x)
	handles, err := h.submitGang(ctx, gangs, near, specs)
	if err != nil {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*cancelGrace)
		defer cancel()
		for _, s := range specs {
			err = errors.Join(err, h.discard(end, s.Dir, open))
		}
		return fmt.Errorf("submit gang %s: %w", specs[0].Gang, err)
	}
	ids := make([]string, len(handles))
	for i, handle := range handles {
		ids[i] = handle.ID + " (" + handle.Block + ")"
	}
	report("submitted together: jobs " + strings.Join(ids, ", "))
	return nil
}

// endGang ends what is left of earlier jobs of a gang, and returns a number of the next attempt that none of them had.
func (h *Hub) endGang(ctx context.Context, specs []Spec, open Open) (attempt int, err error) {
	for _, s := range specs {
		attempt = max(attempt, s.Attempt)
		r, err := readRecord(s.Dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		attempt = max(attempt, r.Handle.Attempt+1)
		if r.Used {
			if err := h.endUsed(ctx, s.Dir, r, open); err != nil {
				return 0, err
			}
		}
		if err := h.discard(ctx, s.Dir, open); err != nil {
			return 0, err
		}
	}
	return attempt, nil
}

// endUsed asks a block's job to end, and waits until its attempt is over.
func (h *Hub) endUsed(ctx context.Context, dir string, r record, open Open) error {
	x, err := open(r.Executor)
	if err == nil {
		err = x.Cancel(ctx, r.Handle, gangGrace)
	}
	if err != nil {
		return err
	}
	for end := time.Now().Add(gangPatience); h.runs(dir); {
		if time.Now().After(end) {
			return fmt.Errorf("the attempt of %s in job %s is not over after %s", r.Handle.Block, r.Handle.ID, gangPatience)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the end of %s: %w", r.Handle.Block, context.Cause(ctx))
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// runs reports whether a block in a directory has a job of this engine.
func (h *Hub) runs(dir string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for j := range h.jobs {
		if j.dir == dir {
			return true
		}
	}
	return false
}

// discard gives back the job that is recorded in a block's directory, if there is one, and forgets its agents.
func (h *Hub) discard(ctx context.Context, dir string, open Open) error {
	h.records.Lock()
	defer h.records.Unlock()
	r, err := readRecord(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	h.forget(h.expect(r.Handle.Key, r.nodes()))
	return Sweep(ctx, dir, open)
}

// submitGang writes what the agents need, and the records by which the jobs are found if the engine is killed; then it
// submits the jobs.
func (h *Hub) submitGang(ctx context.Context, gangs executor.Gangs, near bool,
	specs []Spec) ([]executor.Handle, error) {
	if err := h.listen(near); err != nil {
		return nil, err
	}
	jobs, records := make([]executor.Job, len(specs)), make([]record, len(specs))
	for i, s := range specs {
		described, err := Describe(s, h.id)
		if err == nil {
			err = os.MkdirAll(s.Dir, 0o700)
		}
		if err == nil {
			err = h.bootstrap(bootstrapPath(s.Dir), h.expect(described.Key, max(s.Nodes, 1)), s.Grace, near)
		}
		jobs[i] = described
		records[i] = record{Format: recordFormat, Executor: s.Executor, Handle: executor.Handle{Key: described.Key},
			Asked: s.Resources, Gang: s.Gang}
		if err = errors.Join(err, agent.WriteJSON(filepath.Join(s.Dir, recordName), records[i])); err != nil {
			return nil, err
		}
	}
	handles, err := gangs.SubmitTogether(ctx, jobs)
	if err != nil {
		return nil, err
	}
	for i, s := range specs {
		records[i].Handle = handles[i]
		if err := agent.WriteJSON(filepath.Join(s.Dir, recordName), records[i]); err != nil {
			return nil, err
		}
	}
	return handles, nil
}

// EndWaiting gives back the jobs in a run directory that were submitted with a gang and in which nothing was started:
// no block may know of them.
func EndWaiting(ctx context.Context, run string, open Open) error {
	return endRecorded(ctx, run, open, func(r record) bool { return r.Gang != "" && !r.Used })
}

// EndAll gives back every job that is recorded in a run directory, also of blocks that the run's own record does not
// hold.
func EndAll(ctx context.Context, run string, open Open) error {
	return endRecorded(ctx, run, open, nil)
}

// endRecorded gives back the recorded jobs that which selects; nil: all of them.
func endRecorded(ctx context.Context, run string, open Open, which func(record) bool) error {
	paths, err := filepath.Glob(filepath.Join(run, "blocks", "*", recordName))
	if err != nil {
		return fmt.Errorf("find the jobs of the run: %w", err)
	}
	var errs []error
	for _, path := range paths {
		dir := filepath.Dir(path)
		r, err := readRecord(dir)
		switch {
		case err != nil && which == nil: // what runs is not known
			errs = append(errs, err)
		case err == nil && (which == nil || which(r)):
			errs = append(errs, Sweep(ctx, dir, open))
		}
	}
	return errors.Join(errs...)
}
