package tiny

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// feed is where batches come from. It outlasts restarts of the trajectory API.
type feed struct {
	client       *trajectory.Client
	transport    *http.Transport
	host         sdk.Host
	api          string // address of the trajectories block
	registration trajectory.Registration
	failing      time.Time // since when the API has not answered; zero: it does
	unusable     bool      // the last batch held groups that cannot be read, or none that can be trained on
}

const (
	// lease is how long a batch may be trained on before another trainer would get it.
	lease = 2 * time.Minute
	// patience is how long the API may be away: its restart by policy must fit.
	patience = 5 * time.Minute
)

func newFeed(api string, ref outputs.Trajectories, host sdk.Host) (*feed, error) {
	f := &feed{api: api, host: host, transport: trajectory.Transport(ref.URL, ref.Token, &http.Transport{
		MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute})}
	var err error
	// A step takes milliseconds here, so a batch is asked for often.
	f.client, err = trajectory.New(ref.URL, trajectory.WithToken(ref.Token),
		trajectory.WithHTTPClient(&http.Client{Transport: f.transport}),
		trajectory.WithBatchRetry(trajectory.Retry{Attempts: 100, First: 2 * time.Millisecond, Factor: 1.3,
			Cap: 50 * time.Millisecond}))
	return f, err
}

func (f *feed) close() { f.transport.CloseIdleConnections() }

func (f *feed) register(ctx context.Context, r trajectory.Registration) error {
	f.registration = r
	if _, err := f.client.Register(ctx, r); err != nil {
		return fmt.Errorf("registering with the trajectory API: %w", err)
	}
	return nil
}

// next waits for a batch. It ends with an error when ctx does, when the API refuses the trainer, or when it has been
// away for longer than patience.
func (f *feed) next(ctx context.Context, step int) (*trajectory.Batch, error) {
	defer f.host.Begin(sdk.Activity{On: f.api, What: fmt.Sprintf("batch %d", step+1)}).End()
	for {
		batch, err := f.client.Batch(ctx, lease)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err == nil:
			if !f.failing.IsZero() {
				f.failing = time.Time{}
				f.host.Phase(sdk.Ready, "")
			}
			if batch != nil {
				return batch, nil
			}
		case errors.Is(err, trajectory.Unregistered):
			f.host.Log("warn", "the trajectory API has forgotten this trainer; registering again")
			f.registration.StartingStep = step
			if err := f.register(ctx, f.registration); err != nil {
				return nil, err
			}
		case !passing(err):
			return nil, fmt.Errorf("fetching a batch: %w", err)
		default:
			if err := f.away(ctx, err); err != nil {
				return nil, err
			}
		}
	}
}

// away waits a little when the API does not answer.
func (f *feed) away(ctx context.Context, err error) error {
	if f.failing.IsZero() {
		f.failing = time.Now()
		f.host.Phase(sdk.Degraded, "the trajectory API does not answer: "+err.Error())
	}
	if lasted := time.Since(f.failing); lasted > patience {
		return &sdk.Error{
			Summary: fmt.Sprintf("the trajectory API has not answered for %s", lasted.Round(time.Second)), Err: err,
			Remedy: "look at the log of the trajectories block",
		}
	}
	pause := time.NewTimer(time.Second)
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-pause.C:
		return nil
	}
}

// done reports that a batch has been trained on. A failure costs at most that the batch comes again.
func (f *feed) done(ctx context.Context, b *trajectory.Batch) {
	if b.ID == "" {
		return
	}
	if err := f.client.Ack(ctx, b.ID); err != nil && ctx.Err() == nil {
		f.host.Log("warn", fmt.Sprintf("batch %s could not be acknowledged and may come again: %v", b.ID, err))
	}
}

// trained reports what was computed for a batch. Without it, views of the run show less.
func (f *feed) trained(ctx context.Context, b *trajectory.Batch, t *trajectory.Trained) {
	if b.ID == "" || t == nil {
		return
	}
	if err := f.client.Trained(ctx, b.ID, *t); err != nil && ctx.Err() == nil {
		f.host.Log("debug", fmt.Sprintf("what was computed for batch %s is not recorded: %v", b.ID, err))
	}
}

// unused shows in the status that groups of a batch cannot be read, or that none of it can be trained on, until a batch
// comes of which that is not so. What trains beside a few invalid groups is counted and logged only.
func (f *feed) unused(r report) {
	unusable := r.rejected["unreadable"] > 0 || !r.trained
	switch {
	case unusable:
		total := 0
		for _, n := range r.rejected {
			total += n
		}
		f.host.Phase(sdk.Degraded, fmt.Sprintf("%d groups of the last batch were set aside: %v", total, r.example))
	case f.unusable:
		f.host.Phase(sdk.Ready, "")
	}
	f.unusable = unusable
}

// reached posts the policy version, by which the API measures how old groups are. Without it, it only measures less.
func (f *feed) reached(ctx context.Context, version int64) {
	if err := f.client.SetPolicyVersion(ctx, version); err != nil && ctx.Err() == nil {
		f.host.Log("warn", fmt.Sprintf("post policy version %d to the trajectory API: %v", version, err))
	}
}

// passing reports whether an error may go away by itself.
func passing(err error) bool {
	for _, reason := range []trajectory.Reason{trajectory.Refused, trajectory.Timeout, trajectory.Unreachable,
		trajectory.ServerError, trajectory.Broken} {
		if errors.Is(err, reason) {
			return true
		}
	}
	return false
}
