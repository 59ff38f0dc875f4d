// Command nomad is a plugin of recipe that nobody links into it: the block executor "nomad", which runs blocks as batch
// jobs of a Nomad cluster. It asks Nomad's servers by their HTTP API and keeps nothing itself.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	nomad "github.com/hashicorp/nomad/api"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/executor"
)

// Config is the body of the block. What is left out comes from Nomad's own environment variables.
type Config struct {
	Address     string   `recipe:"address" doc:"URL of a Nomad server or agent. Default: NOMAD_ADDR, else http://127.0.0.1:4646. The token is NOMAD_TOKEN, which goes to the address of NOMAD_ADDR only; certificates are NOMAD_CACERT, NOMAD_CLIENT_CERT and NOMAD_CLIENT_KEY"`
	Region      string   `recipe:"region" doc:"Region. Default: NOMAD_REGION, else that of the agent"`
	Namespace   string   `recipe:"namespace" doc:"Namespace of the jobs. Default: NOMAD_NAMESPACE, else \"default\""`
	Datacenters []string `recipe:"datacenters" doc:"Datacenters that may run the jobs. Default: all"`
	NodePool    string   `recipe:"node_pool" doc:"Node pool of the jobs"`
	Priority    int      `recipe:"priority" default:"50" min:"1" max:"100" doc:"Priority of the jobs; a higher one goes first"`
	Driver      string   `recipe:"driver" default:"raw_exec" enum:"raw_exec,exec" doc:"How a node runs the program: raw_exec as an ordinary process, exec isolated, with only the folders that the node's configuration gives it"`
	User        string   `recipe:"user" doc:"User who runs the program. Default: that of Nomad's client, often root. The files of the run belong to whoever applies the recipe"`
	GPUDevice   string   `recipe:"gpu_device" default:"nvidia/gpu" doc:"Device that placement { gpus } asks for, as Nomad's device plugins name it"`
	executor.Files
}

// cluster is the executor.
type cluster struct {
	config Config
	client *nomad.Client
}

var (
	_ executor.Executor = (*cluster)(nil)
	_ executor.Tester   = (*cluster)(nil)
	_ executor.Examiner = (*cluster)(nil)
)

// open makes the executor; no folder is needed, as all is in the cluster.
func open(config Config, _ string) (executor.Executor, error) {
	c := nomad.DefaultConfig() // with Nomad's environment variables
	if config.Address != "" && strings.TrimRight(config.Address, "/") != strings.TrimRight(c.Address, "/") {
		// A plan asks the cluster, and a recipe may be a stranger's: what the environment holds is for its own address.
		c.Address, c.SecretID, c.HttpAuth = config.Address, "", nil
	}
	c.Region = cmp.Or(config.Region, c.Region)
	c.Namespace = cmp.Or(config.Namespace, c.Namespace)
	client, err := newClient(c)
	if err != nil {
		return nil, &sdk.Error{Summary: "the settings of Nomad's client are wrong", Err: err,
			Remedy: "correct the executor block or the environment variables NOMAD_*"}
	}
	return &cluster{config: config, client: client}, nil
}

func query(ctx context.Context) *nomad.QueryOptions { return (&nomad.QueryOptions{}).WithContext(ctx) }
func write(ctx context.Context) *nomad.WriteOptions { return (&nomad.WriteOptions{}).WithContext(ctx) }

// explain describes what an error of Nomad's API means.
func (c *cluster) explain(err error) error {
	var refused nomad.UnexpectedResponseError
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case !errors.As(err, &refused) || refused.StatusCode() >= http.StatusInternalServerError &&
		strings.Contains(err.Error(), "No cluster leader"):
		return fmt.Errorf("%w: Nomad at %s: %w", executor.ErrUnreachable, c.client.Address(), err)
	case refused.StatusCode() == http.StatusForbidden:
		return &sdk.Error{Summary: "Nomad: " + strings.TrimSpace(refused.Body()),
			Remedy: "set NOMAD_TOKEN to a token with the rights in docs/clusters.md, and NOMAD_ADDR to " + c.client.Address() +
				", the only address that gets it"}
	case refused.StatusCode() == http.StatusNotFound:
		return &sdk.Error{Summary: "Nomad: " + strings.TrimSpace(refused.Body()),
			Remedy: "look whether Nomad has removed it: a node drops ended jobs and their logs when its disk is full " +
				"(gc_disk_usage_threshold) and after a while (job_gc_threshold)"}
	}
	return &sdk.Error{Summary: "Nomad: " + strings.TrimSpace(refused.Body()),
		Remedy: "correct the executor block, or placement of the block that it is to run"}
}

// Submit implements executor.Executor. The name of a job follows from its key, and Nomad refuses to register it again.
func (c *cluster) Submit(ctx context.Context, j executor.Job) (executor.Handle, error) {
	h := executor.Handle{Key: j.Key, ID: name(j.Key)}
	if j.Input != "" {
		input := &nomad.Variable{Path: variable(j.Key), Items: nomad.VariableItems{"input": j.Input}}
		if _, _, err := c.client.Variables().Update(input, write(ctx)); err != nil {
			return h, c.explain(err)
		}
	}
	request := object{"Job": c.job(j), "EnforceIndex": true, "JobModifyIndex": 0} // that of a job that is not there
	_, err := c.client.Raw().Write("/v1/jobs", request, nil, write(ctx))
	if err != nil && strings.Contains(err.Error(), nomad.RegisterEnforceIndexErrPrefix) {
		return h, nil // it was submitted before
	}
	return h, c.explain(err)
}

// logs is the path of logs.
const logs = "/v1/client/fs/logs/"

// Logs implements executor.Executor.
func (c *cluster) Logs(ctx context.Context, h executor.Handle, to io.Writer) error {
	if h.ID != name(h.Key) {
		return fmt.Errorf("%q is no name of a job of %s", h.ID, h.Key)
	}
	allocs, err := c.allocations(ctx, h.ID)
	for _, a := range allocs {
		for _, stream := range []string{"stdout", "stderr"} {
			q := query(ctx)
			q.Params = map[string]string{"task": task, "type": stream, "plain": "true", "origin": "start"}
			text, failed := c.client.Raw().Response(logs+a.ID, q)
			if failed != nil {
				err = errors.Join(err, failed)
				continue
			}
			_, failed = io.Copy(to, text)
			err = errors.Join(err, failed, text.Close())
		}
	}
	return c.explain(err)
}

// Cancel implements executor.Executor. Nomad stops a job in the way that is written into it: SIGTERM, and after the
// kill timeout SIGKILL for all that it has started. So that timeout is changed first.
func (c *cluster) Cancel(ctx context.Context, h executor.Handle, grace time.Duration) error {
	if h.ID != name(h.Key) {
		return nil // a job of somebody else, which a changed record names
	}
	if c.config.Staged() {
		if _, err := c.client.Variables().Delete(variable(h.Key), write(ctx)); err != nil {
			return c.explain(err)
		}
	}
	job, err := c.named(ctx, h.ID)
	if isNotFound(err) { // the list is the second source
		st, err := executor.One(ctx, c, h)
		if err != nil || st.State == executor.Unknown || st.State.Over() {
			return err
		}
		job, err = c.named(ctx, h.ID)
		if err != nil {
			return c.explain(err)
		}
	}
	if err == nil && (job.Status == nil || len(job.TaskGroups) != 1 || len(job.TaskGroups[0].Tasks) != 1) {
		err = fmt.Errorf("the answer of Nomad at %s has job %s without a status or with other tasks than it was given",
			c.client.Address(), h.ID)
	}
	if err == nil && *job.Status == "dead" {
		return nil
	}
	if err == nil {
		job.TaskGroups[0].Tasks[0].KillTimeout = new(grace)
		_, _, err = c.client.Jobs().Register(job, write(ctx))
	}
	if err == nil {
		_, _, err = c.client.Jobs().Deregister(h.ID, false, write(ctx))
	}
	if err != nil {
		return c.explain(err)
	}
	return executor.Wait(ctx, c, h, poll)
}

// poll is how often Cancel looks whether a job is over.
const poll = 200 * time.Millisecond

// List implements executor.Executor.
func (c *cluster) List(ctx context.Context, run string) ([]executor.Handle, error) {
	jobs, err := c.jobs(ctx, prefix(run))
	if err != nil {
		return nil, err
	}
	var out []executor.Handle
	for _, j := range jobs {
		key, err := executor.ParseKey(j.Meta[keyMeta])
		if err == nil && key.Run == run && j.Status != "dead" {
			out = append(out, executor.Handle{Key: key, ID: j.ID})
		}
	}
	return out, nil
}

func definition() *sdk.Definition {
	return executor.New("nomad", "Runs blocks as batch jobs of a Nomad cluster", open, sdk.WithVersion("0.1.0"),
		sdk.WithEnvironmentVariables("NOMAD_*"))
}

func main() { sdk.Serve(definition()) }
