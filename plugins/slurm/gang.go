package slurm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/sdk/executor"
)

// A gang is one heterogeneous job, each member a component of it with its own resources. Slurm starts all components
// together, and has one batch script for them, on the first machine of the first one. Its IDs are JOB+NUMBER. Slurm
// neither signals nor cancels one component: that is done to its job step.

// RenderTogether implements executor.Gangs.
func (s *slurm) RenderTogether(jobs []executor.Job) (executor.Request, error) {
	var b strings.Builder
	b.WriteString("#!/bin/bash\n")
	for i, j := range jobs {
		header, err := s.header(j)
		if err != nil {
			return executor.Request{}, err
		}
		if i > 0 {
			b.WriteString("#SBATCH hetjob\n")
		}
		b.WriteString(header)
	}
	b.WriteString("umask 077\n" + setup(s.config.Setup) + s.config.prepare())
	var files []string
	for i, j := range jobs {
		nodes := max(j.Nodes, 1)
		// Without --mem a step asks for the memory of the first component.
		step := fmt.Sprintf("%s --het-group=%d --mem=0 --chdir=%s --output=%s", srun(nodes, max(j.CPUs, 1)), i,
			quote(j.Dir), quote(strings.ReplaceAll(logOf(j), "%", "%%")))
		if nodes > 1 {
			step += numbered
		}
		file := exitFile(logOf(j))
		files = append(files, quote(file))
		fmt.Fprintf(&b, "(%s%s; echo $? >%s) &\n", step, s.command(j), quote(file))
	}
	fmt.Fprintf(&b, awaitGang, strings.Join(files, " "))
	return executor.Request{Language: "sbatch", Text: b.String()}, nil
}

// awaitGang waits until all components have ended. When one of them fails, the others are asked to end; so are all when
// the job is.
const awaitGang = `ask() { [ -n "$asked" ] || scancel --signal=TERM "$SLURM_JOB_ID"; asked=1; }
trap ask TERM
while [ -n "$(jobs -pr)" ]; do
  wait -n
  if grep -qsvx 0 %s; then ask; fi
done
`

// exitFile is where the script of a gang writes the exit status of a component: Slurm knows only that of the batch
// script.
func exitFile(log string) string { return strings.TrimSuffix(log, ".log") + ".exit" }

// leader is the ID of the heterogeneous job of a component, and whether an ID is that of a component.
func leader(id string) (string, bool) {
	job, _, component := strings.Cut(id, "+")
	return job, component
}

// SubmitTogether implements executor.Gangs.
func (s *slurm) SubmitTogether(ctx context.Context, jobs []executor.Job) ([]executor.Handle, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	handles, err := s.together(ctx, jobs)
	if err != nil || handles != nil {
		return handles, err
	}
	request, err := s.RenderTogether(jobs)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("submit a gang: %w", err)
	}
	for _, j := range jobs { // of an earlier job in the same folder
		if err := os.Remove(exitFile(logOf(j))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("submit %s: %w", j.Key, err)
		}
	}
	out, err := run(ctx, request.Text, "sbatch", "--parsable")
	if err != nil {
		return nil, fmt.Errorf("submit a gang of %d jobs: %w", len(jobs), s.explain(ctx, err))
	}
	id, err := submittedID(out)
	if err != nil {
		return nil, fmt.Errorf("submit a gang of %d jobs: %w", len(jobs), err)
	}
	for i, j := range jobs {
		h := executor.Handle{Key: j.Key, ID: id + "+" + strconv.Itoa(i)}
		if err := s.record(h, j); err != nil {
			return nil, err
		}
		handles = append(handles, h)
	}
	return handles, nil
}

// together returns the handles of jobs that were submitted before, by this engine or by one that was killed between the
// submission and its record; none when they were not.
func (s *slurm) together(ctx context.Context, jobs []executor.Job) ([]executor.Handle, error) {
	list, err := queue(ctx)
	if err != nil {
		return nil, fmt.Errorf("submit a gang: %w", err)
	}
	known := map[executor.Key]string{}
	for _, q := range list {
		known[q.key] = q.id
	}
	var handles []executor.Handle
	for _, j := range jobs {
		id := known[j.Key]
		if r, err := s.recorded(j.Key); err == nil {
			id = r.ID
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if id == "" {
			continue
		}
		h := executor.Handle{Key: j.Key, ID: id}
		if err := os.MkdirAll(s.dir, 0o700); err != nil {
			return nil, fmt.Errorf("submit %s: %w", j.Key, err)
		}
		if err := s.record(h, j); err != nil {
			return nil, err
		}
		handles = append(handles, h)
	}
	if len(handles) > 0 && len(handles) < len(jobs) {
		return nil, fmt.Errorf("of the %d jobs of a gang, %d were submitted before: submit all under new keys", len(jobs),
			len(handles))
	}
	return handles, nil
}

// component is the status of a job, which for a component of a gang is that of its program: Slurm keeps its machines
// until the whole gang has ended.
func (s *slurm) component(h executor.Handle, st executor.Status) executor.Status {
	if _, ok := leader(h.ID); !ok || st.State == executor.Pending {
		return st
	}
	r, err := s.recorded(h.Key)
	if err != nil {
		return st
	}
	text, err := regular.FollowFile(exitFile(r.Log), maxRecord)
	if err != nil {
		return st
	}
	code := exitCode(strings.TrimSpace(string(text)))
	if code == nil {
		return st
	}
	st.State, st.ExitCode = executor.Succeeded, code
	if *code != 0 {
		st.State = executor.Failed
	}
	return st
}

// terminate asks the program of a job that runs to end.
func (*slurm) terminate(ctx context.Context, h executor.Handle) error {
	if _, component := leader(h.ID); component {
		return signalSteps(ctx, h, "TERM")
	}
	_, err := run(ctx, "", "scancel", "--batch", "--signal=TERM", h.ID)
	return err
}

// kill ends a job. One of a gang that has not started takes the others with it.
func (*slurm) kill(ctx context.Context, h executor.Handle, st executor.Status) error {
	job, component := leader(h.ID)
	if component && st.State == executor.Running && signalSteps(ctx, h, "KILL") == nil {
		return nil
	}
	_, err := run(ctx, "", "scancel", job)
	return err
}

// signalSteps sends a signal to the job step of a component. Its ID is that of the component's own job, which is not in
// the ID of the component.
func signalSteps(ctx context.Context, h executor.Handle, signal string) error {
	job, _ := leader(h.ID)
	own, err := run(ctx, "", "squeue", "--noheader", "--jobs="+job, "--format=%i %A")
	if err != nil {
		return err
	}
	raw := ""
	for line := range strings.Lines(own) {
		if id, number, _ := strings.Cut(strings.TrimSpace(line), " "); id == h.ID {
			raw = number
		}
	}
	steps, err := run(ctx, "", "squeue", "--noheader", "--steps", "--format=%i")
	if err != nil {
		return err
	}
	sent := false
	for step := range strings.FieldsSeq(steps) {
		if of, name, _ := strings.Cut(step, "."); of == raw && name != "batch" && name != "extern" {
			if _, err := run(ctx, "", "scancel", "--signal="+signal, step); err != nil {
				return err
			}
			sent = true
		}
	}
	if !sent {
		return fmt.Errorf("job %s has no step that runs", h.ID)
	}
	return nil
}
