package plugintest

import (
	"context"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// trajectoriesChecks are those of trajectories plugins: what environments post comes out as batches of exactly the
// registered size, and a batch that was not acknowledged comes again.
func trajectoriesChecks(t *testing.T, def *sdk.Definition, s Suite) {
	t.Run("groups become batches", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), Deadline)
		defer cancel()
		api := s.store(t, def)
		post(ctx, t, api, 3)
		batch := takeBatch(ctx, t, api, 0)
		if len(batch.Groups) != 2 {
			t.Fatalf("a batch has %d groups, want 2: their sequences add up to the registered batch_size", len(batch.Groups))
		}
		for _, g := range batch.Groups {
			CheckGroup(t, g)
		}
		if status, err := api.Status(ctx); err != nil || status.QueueSize != 1 {
			t.Errorf("queue_size is %d after 3 groups were posted and 2 taken, want 1 (%v)", status.QueueSize, err)
		}
	})
	t.Run("an unacknowledged batch comes again", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), Deadline)
		defer cancel()
		api := s.store(t, def)
		post(ctx, t, api, 2)
		first := takeBatch(ctx, t, api, time.Second)
		if first.ID == "" {
			t.Skip("it has no leases: a batch without an id cannot come again")
		}
		again := takeBatch(ctx, t, api, time.Minute)
		if !equalJSON(first.Groups, again.Groups) {
			t.Error("the lease ended without an acknowledgement, and another batch came")
		}
		if err := api.Ack(ctx, again.ID); err != nil {
			t.Errorf("acknowledge the batch: %v", err)
		}
		if status, err := api.Status(ctx); err != nil || status.QueueSize != 0 {
			t.Errorf("queue_size is %d after the only batch was acknowledged, want 0 (%v)", status.QueueSize, err)
		}
	})
}

// store starts the block, and registers a trainer with batches of 8 sequences and an environment.
func (s Suite) store(t *testing.T, def *sdk.Definition) *trajectory.Client {
	t.Helper()
	b := s.started(t, def)
	b.Ready()
	token := ""
	if v, ok := b.Outputs().AsValueMap()["token"]; ok && !v.IsNull() {
		token = v.AsString()
	}
	api, err := trajectory.New(b.Output("url"), trajectory.WithToken(token), trajectory.WithBatchRetry(trajectory.Retry{
		Attempts: 1, First: time.Millisecond, Factor: 1, Cap: time.Millisecond}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), Deadline)
	defer cancel()
	if _, err := api.Register(ctx, trajectory.Registration{BatchSize: 8, MaxTokenLen: 64, NumSteps: 10,
		WandbGroup: "test", WandbProject: "test"}); err != nil {
		t.Fatalf("register a trainer: %v", err)
	}
	if batch, err := api.Batch(ctx, 0); err != nil || batch != nil {
		t.Fatalf("a batch before anything was posted: %+v, %v; want none", batch, err)
	}
	env, err := api.RegisterEnv(ctx, trajectory.EnvRegistration{DesiredName: "test", MaxTokenLength: 64, Weight: 1,
		GroupSize: 4})
	if err != nil || env.EnvID != 0 {
		t.Fatalf("register an environment: %+v, %v; want id 0", env, err)
	}
	return api
}

func post(ctx context.Context, t *testing.T, api *trajectory.Client, groups int) {
	t.Helper()
	for range groups {
		g := FakeGroup()
		if _, err := api.Post(ctx, &g); err != nil {
			t.Fatalf("post a group: %v", err)
		}
	}
}

// takeBatch polls until there is a batch.
func takeBatch(ctx context.Context, t *testing.T, api *trajectory.Client, lease time.Duration) *trajectory.Batch {
	t.Helper()
	for {
		batch, err := api.Batch(ctx, lease)
		if err != nil {
			t.Fatalf("take a batch: %v", err)
		}
		if batch != nil {
			return batch
		}
		select {
		case <-ctx.Done():
			t.Fatalf("no batch within %s, although enough groups were posted", Deadline)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
