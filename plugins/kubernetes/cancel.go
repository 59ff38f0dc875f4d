package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/recipe-rl/recipe/sdk/executor"
)

const (
	// pollEvery is how often a job is looked at that is to end.
	pollEvery = 250 * time.Millisecond
	// killLate is how long after its grace a pod is given up, as that of a node that does not answer.
	killLate = 10 * time.Second
)

// Logs implements executor.Executor.
func (k *kubernetes) Logs(ctx context.Context, h executor.Handle, to io.Writer) error {
	c, err := k.cluster()
	if err != nil {
		return err
	}
	jobs, err := c.look(ctx, []string{h.Run})
	if err != nil {
		return err
	}
	j := jobs[h.ID]
	if j == nil || len(j.pods) == 0 {
		return fmt.Errorf("the cluster has no pod of job %s", h.ID)
	}
	var errs []error
	for _, p := range j.pods {
		path := c.core("pods") + "/" + p.Metadata.Name + "/log?container=" + containerName
		errs = append(errs, c.do(ctx, http.MethodGet, path, nil, to))
	}
	return errors.Join(errs...)
}

// Cancel implements executor.Executor. Nothing of the job is left in the cluster.
func (k *kubernetes) Cancel(ctx context.Context, h executor.Handle, grace time.Duration) error {
	c, err := k.cluster()
	if err == nil {
		err = k.cancel(ctx, c, h, grace)
	}
	if err != nil {
		return fmt.Errorf("cancel job %s: %w", h.ID, err)
	}
	return nil
}

func (k *kubernetes) cancel(ctx context.Context, c *client, h executor.Handle, grace time.Duration) error {
	jobs, err := c.look(ctx, []string{h.Run})
	if err != nil {
		return err
	}
	j, err := c.find(ctx, h, jobs)
	if err != nil || j == nil || j.job.key() != h.Key {
		return err
	}
	jobs[h.ID] = j
	grace = max(grace, time.Second)
	if j.status().State == executor.Lost {
		grace = 0
	}
	names := canceledWith(jobs, h.ID)
	for _, name := range names {
		if err := k.delete(ctx, c, name, jobs[name].status()); err != nil {
			return err
		}
	}
	for _, name := range names {
		err = errors.Join(err, c.gone(ctx, executor.Handle{Key: executor.Key{Run: h.Run}, ID: name}, grace))
	}
	return err
}

// delete asks the cluster to delete a Job, and notes how it has ended.
func (k *kubernetes) delete(ctx context.Context, c *client, name string, last executor.Status) error {
	if !last.State.Over() {
		last = executor.Status{State: executor.Canceled, Node: last.Node}
	}
	k.mu.Lock()
	k.canceled[name] = last
	k.mu.Unlock()
	// In the foreground: the Job is there until its pods are gone. No pod is made again meanwhile.
	return c.remove(ctx, c.jobs()+"/"+name, object{"propagationPolicy": "Foreground"})
}

// remove deletes something that may be gone already.
func (c *client) remove(ctx context.Context, path string, options object) error {
	options["apiVersion"], options["kind"] = "v1", "DeleteOptions"
	err := c.do(ctx, http.MethodDelete, path, options, nil)
	if isCode(err, http.StatusNotFound) {
		return nil
	}
	return err
}

// gone waits until a Job that is being deleted is gone, with its pods, which get as long as grace to end. Without grace
// their nodes are not waited for.
func (c *client) gone(ctx context.Context, h executor.Handle, grace time.Duration) error {
	asked, began := map[string]bool{}, time.Now()
	for {
		var j *seen
		jobs, err := c.look(ctx, []string{h.Run})
		if err == nil {
			j, err = c.find(ctx, h, jobs)
		}
		if err == nil && j == nil {
			return nil
		}
		late := grace == 0 || time.Since(began) > grace+killLate
		if err == nil {
			for _, p := range j.pods {
				seconds := int64((grace + time.Second - 1) / time.Second)
				if late {
					seconds = 0
				} else if asked[p.Metadata.Name] {
					continue
				}
				asked[p.Metadata.Name] = true
				err = errors.Join(err, c.remove(ctx, c.core("pods")+"/"+p.Metadata.Name,
					object{"gracePeriodSeconds": seconds}))
			}
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("it is still being deleted: %w", ctx.Err()), err)
		case <-time.After(pollEvery):
		}
	}
}
