package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	nomad "github.com/hashicorp/nomad/api"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/executor"
)

// jobs are those whose names begin so, with their metadata.
func (c *cluster) jobs(ctx context.Context, prefix string) ([]*nomad.JobListStub, error) {
	q := query(ctx)
	q.Prefix = prefix
	list, _, err := c.client.Jobs().ListOptions(&nomad.JobListOptions{Fields: &nomad.JobListFields{Meta: true}}, q)
	return list, c.explain(err)
}

// named is the job with a name.
func (c *cluster) named(ctx context.Context, id string) (*nomad.Job, error) {
	job, _, err := c.client.Jobs().Info(id, query(ctx))
	return job, err
}

func isNotFound(err error) bool {
	var refused nomad.UnexpectedResponseError
	return errors.As(err, &refused) && refused.StatusCode() == http.StatusNotFound
}

// allocations are those of jobs whose names begin so: one for each machine of a job.
func (c *cluster) allocations(ctx context.Context, prefix string) ([]*nomad.AllocationListStub, error) {
	q := query(ctx)
	q.Filter = fmt.Sprintf("JobID matches %q", "^"+prefix)
	list, _, err := c.client.Allocations().List(q)
	return list, c.explain(err)
}

// Status implements executor.Executor. Two questions are enough for all jobs of a run, and one more for each that is
// pending. A job that the list does not hold is asked for by its name.
func (c *cluster) Status(ctx context.Context, handles []executor.Handle) ([]executor.Status, error) {
	known := map[string]executor.Status{} // by the jobs' names
	asked := map[string]bool{}
	for _, h := range handles {
		if asked[h.Run] {
			continue
		}
		asked[h.Run] = true
		jobs, err := c.jobs(ctx, prefix(h.Run))
		if err != nil {
			return nil, err
		}
		allocs, err := c.allocations(ctx, prefix(h.Run))
		if err != nil {
			return nil, err
		}
		for _, j := range jobs {
			known[j.ID] = status(j, slices.DeleteFunc(slices.Clone(allocs), func(a *nomad.AllocationListStub) bool {
				return a.JobID != j.ID
			}))
		}
	}
	out := make([]executor.Status, len(handles))
	for i, h := range handles {
		s, ok := known[h.ID]
		if !ok {
			if _, err := c.named(ctx, h.ID); err == nil { // it is there, and the next list holds it
				s = executor.Status{State: executor.Pending, Reason: "Nomad has not listed it yet"}
			} else if isNotFound(err) {
				s = executor.Status{State: executor.Unknown, Reason: "Nomad does not know the job"}
			} else {
				return nil, c.explain(err)
			}
		} else if s.State == executor.Pending && s.Reason == "" {
			s.Reason = c.waits(ctx, h.ID)
		}
		out[i] = s
	}
	return out, nil
}

// status is that of a job by its allocations: the one that has failed, or else the one that is least far.
func status(job *nomad.JobListStub, allocs []*nomad.AllocationListStub) (s executor.Status) {
	states := []executor.State{executor.Failed, executor.Lost, executor.Canceled, executor.Pending, executor.Running,
		executor.Succeeded}
	worst := len(states)
	for _, a := range allocs {
		of := ofAllocation(job, a)
		if at := slices.Index(states, of.State); at < worst {
			worst, s = at, of
		}
	}
	group := job.JobSummary.Summary[task]
	switch {
	case len(allocs) == 0 && job.Stop:
		return executor.Status{State: executor.Canceled}
	case len(allocs) == 0, group.Queued > 0 && !s.State.Over():
		return executor.Status{State: executor.Pending}
	}
	return s
}

func ofAllocation(job *nomad.JobListStub, a *nomad.AllocationListStub) executor.Status {
	s := executor.Status{State: executor.Pending, Node: a.NodeName, Reason: a.ClientDescription}
	if t := a.TaskStates[task]; t != nil {
		for _, e := range t.Events {
			if e.Type != nomad.TaskNotRestarting { // what follows from what was before it
				s.Reason = e.DisplayMessage
			}
			if e.Type == nomad.TaskTerminated {
				s.ExitCode = &e.ExitCode
			}
		}
	}
	switch a.ClientStatus {
	case nomad.AllocClientStatusRunning:
		s.State, s.Reason = executor.Running, ""
	case nomad.AllocClientStatusLost, nomad.AllocClientStatusUnknown:
		s.State, s.Reason = executor.Lost, "its node does not answer"
		if a.DesiredDescription != "" {
			s.Reason += ": " + a.DesiredDescription
		}
	case nomad.AllocClientStatusComplete, nomad.AllocClientStatusFailed:
		s.State = executor.Failed
		if s.ExitCode != nil && *s.ExitCode == 0 {
			s.State = executor.Succeeded
		} else if job.Stop {
			s.State = executor.Canceled
		}
	}
	return s
}

// waits explains why a job is pending.
func (c *cluster) waits(ctx context.Context, job string) string {
	evals, _, err := c.client.Jobs().Evaluations(job, query(ctx))
	var newest *nomad.Evaluation
	for _, e := range evals {
		if e.FailedTGAllocs[task] != nil && (newest == nil || e.ModifyIndex > newest.ModifyIndex) {
			newest = e
		}
	}
	if err != nil || newest == nil {
		return ""
	}
	return words(newest.FailedTGAllocs[task])
}

// words are those of `nomad job status` for why there is no place for a job.
func words(m *nomad.AllocationMetric) string {
	var out []string
	if m.NodesEvaluated == 0 {
		out = append(out, "No nodes were eligible for evaluation")
	}
	each := func(counts map[string]int, text string) {
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			out = append(out, fmt.Sprintf(text, name, counts[name]))
		}
	}
	each(m.ClassFiltered, "Class %q: %d nodes excluded by filter")
	each(m.ConstraintFiltered, "Constraint %q: %d nodes excluded by filter")
	each(m.DimensionExhausted, "Dimension %q exhausted on %d nodes")
	for _, quota := range m.QuotaExhausted {
		out = append(out, fmt.Sprintf("Quota limit hit %q", quota))
	}
	return strings.Join(out, "; ")
}

// Test implements executor.Tester by Nomad's own dry run. A job that has to wait for room is no error.
func (c *cluster) Test(ctx context.Context, j executor.Job) (string, error) {
	var r nomad.JobPlanResponse
	_, err := c.client.Raw().Write("/v1/job/"+name(j.Key)+"/plan", object{"Job": c.job(j)}, &r, write(ctx))
	if err != nil {
		return "", c.explain(err)
	}
	if failed := r.FailedTGAllocs[task]; failed != nil && failed.NodesExhausted == 0 {
		return "", &sdk.Error{Summary: "no node of Nomad can run the job: " + words(failed),
			Remedy: "change placement of the block, or datacenters, node_pool and driver of the executor"}
	}
	return "", nil
}

// Examine implements executor.Examiner.
func (c *cluster) Examine(ctx context.Context) []executor.Check {
	check := executor.Check{Name: "cluster"}
	var leader string
	if _, err := c.client.Raw().Query("/v1/status/leader", &leader, query(ctx)); err != nil {
		check.Found = c.explain(err).Error()
		check.Remedy = "set address or NOMAD_ADDR to the URL of a Nomad agent that answers"
	} else {
		check.Found = c.client.Address() + " answers; the leader is " + leader
	}
	return []executor.Check{check}
}
