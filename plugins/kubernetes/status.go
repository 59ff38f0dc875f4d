package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/sdk/executor"
)

// metadata, job, pod and event are resources of the API, as far as they matter here.
type metadata struct {
	Name        string            `json:"name"`
	UID         string            `json:"uid"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	Deleted     time.Time         `json:"deletionTimestamp"`
}

type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

type job struct {
	Metadata metadata `json:"metadata"`
	Status   struct {
		Conditions []condition `json:"conditions"`
	} `json:"status"`
}

type pod struct {
	Metadata metadata `json:"metadata"`
	Spec     struct {
		Node      string `json:"nodeName"`
		Scheduler string `json:"schedulerName"`
	} `json:"spec"`
	Status struct {
		Phase      string      `json:"phase"`
		Reason     string      `json:"reason"`
		Message    string      `json:"message"`
		Conditions []condition `json:"conditions"`
		Containers []struct {
			State struct {
				Waiting    *condition  `json:"waiting"`
				Terminated *terminated `json:"terminated"`
			} `json:"state"`
		} `json:"containerStatuses"`
	} `json:"status"`
}

type terminated struct {
	ExitCode int    `json:"exitCode"`
	Reason   string `json:"reason"`
	Message  string `json:"message"`
}

type event struct {
	Involved struct {
		UID string `json:"uid"`
	} `json:"involvedObject"`
	Message string `json:"message"`
}

// is returns the condition of a type when it holds.
func is(list []condition, kind string) (condition, bool) {
	for _, c := range list {
		if c.Type == kind {
			return c, c.Status == "True"
		}
	}
	return condition{}, false
}

// key is that of a job of ours; the zero key for one of someone else.
func (j job) key() executor.Key {
	k, err := executor.ParseKey(j.Metadata.Annotations[keyAnnotation])
	if err != nil {
		return executor.Key{}
	}
	return k
}

func (j job) over() bool {
	_, complete := is(j.Status.Conditions, "Complete")
	_, failed := is(j.Status.Conditions, "Failed")
	return complete || failed
}

// seen is a Job with its pods.
type seen struct {
	job  job
	pods []pod
	said string // why no pod could be made, from the cluster's events
}

// look asks for all jobs of some runs, and their pods, by two requests; a third one when a job has no pod.
func (c *client) look(ctx context.Context, runs []string) (map[string]*seen, error) {
	values := make([]string, len(runs))
	for i, run := range runs {
		values[i] = labelOf(run)
	}
	selector := "?labelSelector=" + url.QueryEscape(managedLabel+"=recipe,"+runLabel+" in ("+strings.Join(values, ",")+")")
	// Pods first: a Job whose pod is not there yet is pending, but a Job that is not there has none.
	var pods list[pod]
	if err := c.do(ctx, http.MethodGet, c.core("pods")+selector, nil, &pods); err != nil {
		return nil, err
	}
	var jobs list[job]
	if err := c.do(ctx, http.MethodGet, c.jobs()+selector, nil, &jobs); err != nil {
		return nil, err
	}
	out := map[string]*seen{}
	for _, j := range jobs.Items {
		out[j.Metadata.Name] = &seen{job: j}
	}
	for _, p := range pods.Items {
		if j := out[p.Metadata.Labels[jobLabel]]; j != nil {
			j.pods = append(j.pods, p)
		}
	}
	for _, j := range out {
		slices.SortFunc(j.pods, func(a, b pod) int { return cmp.Compare(a.Metadata.Name, b.Metadata.Name) })
	}
	return out, c.whyNone(ctx, out)
}

// whyNone asks why the pods of jobs could not be made, such as a quota of the namespace.
func (c *client) whyNone(ctx context.Context, jobs map[string]*seen) error {
	waiting := map[string]*seen{}
	for _, j := range jobs {
		if len(j.pods) == 0 && !j.job.over() {
			waiting[j.job.Metadata.UID] = j
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	var events list[event]
	err := c.do(ctx, http.MethodGet, c.core("events")+"?fieldSelector="+
		url.QueryEscape("reason=FailedCreate,involvedObject.kind=Job"), nil, &events)
	if isCode(err, http.StatusForbidden) {
		return nil // then it is not said why
	}
	for _, e := range events.Items {
		if j := waiting[e.Involved.UID]; j != nil {
			j.said = e.Message
		}
	}
	return err
}

// find is look, and asks by name for one Job that the answer does not hold: its labels may have been taken from it.
// Nil:
// the cluster has no such Job.
func (c *client) find(ctx context.Context, h executor.Handle, jobs map[string]*seen) (*seen, error) {
	if j := jobs[h.ID]; j != nil {
		return j, nil
	}
	found := &seen{}
	err := c.do(ctx, http.MethodGet, c.jobs()+"/"+url.PathEscape(h.ID), nil, &found.job)
	if isCode(err, http.StatusNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var pods list[pod]
	err = c.do(ctx, http.MethodGet, c.core("pods")+"?labelSelector="+url.QueryEscape(jobLabel+"="+h.ID), nil, &pods)
	found.pods = pods.Items
	return found, err
}

// Status implements executor.Executor. A Job that the list does not hold is asked for by its name.
func (k *kubernetes) Status(ctx context.Context, handles []executor.Handle) ([]executor.Status, error) {
	c, err := k.cluster()
	if err != nil {
		return nil, err
	}
	var runs []string
	for _, h := range handles {
		if !slices.Contains(runs, h.Run) {
			runs = append(runs, h.Run)
		}
	}
	jobs, err := c.look(ctx, runs)
	if err != nil {
		return nil, err
	}
	out := make([]executor.Status, len(handles))
	for i, h := range handles {
		k.mu.Lock()
		was, canceled := k.canceled[h.ID]
		k.mu.Unlock()
		if canceled && jobs[h.ID] == nil {
			out[i] = was
			continue
		}
		j, err := c.find(ctx, h, jobs)
		switch {
		case err != nil:
			return nil, err
		case j == nil:
			out[i] = executor.Status{State: executor.Unknown, Reason: "the cluster has no Job " + h.ID}
		case j.job.key() != h.Key:
			out[i] = executor.Status{State: executor.Lost, Reason: "Job " + h.ID + " of the cluster is not one of this run"}
		default:
			out[i] = j.status()
		}
	}
	return out, nil
}

// status is that of a job from what the cluster has said. Of several pods, the first one that explains its state does.
func (s *seen) status() executor.Status {
	pods := map[executor.State]executor.Status{}
	for _, p := range s.pods {
		st := p.status()
		if _, known := pods[st.State]; !known {
			pods[st.State] = st
		}
	}
	for _, state := range []executor.State{executor.Lost, executor.Failed, executor.Pending, executor.Running} {
		if st, ok := pods[state]; ok {
			return st
		}
	}
	if c, failed := is(s.job.Status.Conditions, "Failed"); failed {
		return executor.Status{State: executor.Failed, Reason: c.Reason + ": " + c.Message}
	}
	if st, ok := pods[executor.Succeeded]; ok {
		return st
	}
	if !s.job.Metadata.Deleted.IsZero() {
		return executor.Status{State: executor.Running, Reason: "it is being deleted"}
	}
	if c, suspended := is(s.job.Status.Conditions, "Suspended"); suspended {
		return executor.Status{State: executor.Pending, Reason: "Suspended: " + cmp.Or(c.Message, c.Reason)}
	}
	return executor.Status{State: executor.Pending, Reason: withRemedy(s.said)}
}

// status is that of one pod.
func (p pod) status() executor.Status {
	out := executor.Status{Node: p.Spec.Node}
	disrupted, _ := is(p.Status.Conditions, "DisruptionTarget")
	switch p.Status.Phase {
	case "Succeeded":
		out.State = executor.Succeeded
		p.ended(&out)
	case "Failed":
		out.State, out.Reason = executor.Failed, cmp.Or(disrupted.Reason, p.Status.Reason)
		if message := cmp.Or(disrupted.Message, p.Status.Message); message != "" {
			out.Reason += ": " + message
		}
		p.ended(&out)
	case "Running":
		out.State = executor.Running
		if p.nodeIsLost() {
			out.State, out.Reason = executor.Lost, "its node does not answer ("+disrupted.Reason+")"
		} else if disrupted.Reason != "" {
			out.Reason = "it is asked to end: " + disrupted.Reason
		}
	default:
		out.State, out.Reason = executor.Pending, withRemedy(p.waitsFor())
	}
	return out
}

// ended adds how the container of a pod that is over has ended.
func (p pod) ended(out *executor.Status) {
	for _, c := range p.Status.Containers {
		t := c.State.Terminated
		if t == nil {
			continue
		}
		out.ExitCode = &t.ExitCode
		if out.Reason == "" && t.Reason != "Error" && t.Reason != "Completed" { // these say no more than the status
			out.Reason = withRemedy(strings.TrimSuffix(t.Reason+": "+t.Message, ": "))
		}
	}
}

// nodeIsLost says whether the cluster has given up the pod because its node does not answer. Then the cluster says that
// the pod is not ready, while its containers are, by the last word of the node; a node that answers says both.
func (p pod) nodeIsLost() bool {
	ready, yes := is(p.Status.Conditions, "Ready")
	_, containers := is(p.Status.Conditions, "ContainersReady")
	return !p.Metadata.Deleted.IsZero() && ready.Type != "" && !yes && containers
}

// waitsFor is why a pod is pending, in the cluster's words.
func (p pod) waitsFor() string {
	for _, c := range p.Status.Containers {
		if w := c.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			return w.Reason + ": " + w.Message
		}
	}
	c, scheduled := is(p.Status.Conditions, "PodScheduled")
	if !scheduled && c.Reason != "" {
		return c.Reason + ": " + c.Message
	}
	if s := p.Spec.Scheduler; c.Type == "" && s != "" && s != "default-scheduler" { // which may not run
		return fmt.Sprintf("scheduler %q has not said anything of it", s)
	}
	if p.Spec.Node != "" {
		return "its container is being created"
	}
	return ""
}
