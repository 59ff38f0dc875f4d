package executor

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/recipe-rl/recipe/sdk/pluginpb"
)

// renderLimit bounds Render, which has no context: it asks nobody.
const renderLimit = 30 * time.Second

// Client is an executor in another process. Whether it has an ability is in Abilities.
type Client struct {
	rpc       pluginpb.ExecutorClient
	abilities []string
}

var _ Executor = (*Client)(nil)

// Connect opens the executor of a process. Config is encoded by spec.Marshal; dir is as in Factory.
func Connect(ctx context.Context, rpc pluginpb.ExecutorClient, config []byte, dir string) (*Client, error) {
	r, err := rpc.Open(ctx, &pluginpb.OpenExecutorRequest{Config: config, Dir: dir})
	return &Client{rpc: rpc, abilities: r.GetAbilities()}, decodeError(err)
}

// Abilities are those that the executor has, by their names in the protocol.
func (c *Client) Abilities() []string { return c.abilities }

// Render implements Executor.
func (c *Client) Render(j Job) (Request, error) {
	ctx, cancel := context.WithTimeout(context.Background(), renderLimit)
	defer cancel()
	r, err := c.rpc.Render(ctx, &pluginpb.RenderJobRequest{Job: encodeJob(j)})
	return Request{Language: r.GetLanguage(), Text: r.GetText()}, decodeError(err)
}

// Submit implements Executor.
func (c *Client) Submit(ctx context.Context, j Job) (Handle, error) {
	r, err := c.rpc.Submit(ctx, &pluginpb.SubmitJobRequest{Job: encodeJob(j)})
	return decodeHandle(r.GetHandle()), decodeError(err)
}

// Status implements Executor.
func (c *Client) Status(ctx context.Context, handles []Handle) ([]Status, error) {
	r, err := c.rpc.Status(ctx, &pluginpb.JobStatusRequest{Handles: each(handles, encodeHandle)})
	return each(r.GetStatuses(), decodeStatus), decodeError(err)
}

// Logs implements Executor.
func (c *Client) Logs(ctx context.Context, h Handle, to io.Writer) error {
	ctx, cancel := context.WithCancel(ctx) // ends the stream when to refuses
	defer cancel()
	stream, err := c.rpc.Logs(ctx, &pluginpb.JobLogsRequest{Handle: encodeHandle(h)})
	for err == nil {
		var r *pluginpb.JobLogsResponse
		if r, err = stream.Recv(); err == nil {
			_, err = to.Write(r.GetData())
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return decodeError(err)
}

// Cancel implements Executor.
func (c *Client) Cancel(ctx context.Context, h Handle, grace time.Duration) error {
	_, err := c.rpc.Cancel(ctx, &pluginpb.CancelJobRequest{Handle: encodeHandle(h), GraceMs: grace.Milliseconds()})
	return decodeError(err)
}

// List implements Executor.
func (c *Client) List(ctx context.Context, run string) ([]Handle, error) {
	r, err := c.rpc.List(ctx, &pluginpb.ListJobsRequest{Run: run})
	return each(r.GetHandles(), decodeHandle), decodeError(err)
}

// Test is that of a Tester.
func (c *Client) Test(ctx context.Context, j Job) (string, error) {
	r, err := c.rpc.Test(ctx, &pluginpb.TestJobRequest{Job: encodeJob(j)})
	return r.GetAnswer(), decodeError(err)
}

// Examine asks for the checks of an Examiner.
func (c *Client) Examine(ctx context.Context) ([]Check, error) {
	r, err := c.rpc.Examine(ctx, &pluginpb.ExamineClusterRequest{})
	return each(r.GetChecks(), func(c *pluginpb.ClusterCheck) Check {
		return Check{Name: c.GetName(), Found: c.GetFound(), Remedy: c.GetRemedy()}
	}), decodeError(err)
}
