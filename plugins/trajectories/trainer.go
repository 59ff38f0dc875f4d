package trajectories

import (
	"context"
	"fmt"

	"github.com/recipe-rl/recipe/internal/samples"
	"github.com/recipe-rl/recipe/plugins/trajectories/queue"
	"github.com/recipe-rl/recipe/plugins/trajectories/store"
	sdksync "github.com/recipe-rl/recipe/sdk/sync"
)

// register registers a trainer. A second one takes over: the step continues, and batches that the first had leased and
// not acknowledged are handed out again at once.
func (b *state) register(
	ctx context.Context,
	r registration,
	startingStep, maxTokenLen int64,
	checkpoints string,
) error {
	b.mu.Lock()
	first := b.doc.Trainer == nil
	b.doc.Trainer = &r
	b.doc.MaxTokenLen, b.doc.Checkpoints = maxTokenLen, checkpoints
	if first {
		b.doc.Step = startingStep
	} else {
		b.doc.Step = max(b.doc.Step, startingStep)
	}
	for _, out := range b.batches {
		if !out.busy {
			b.reclaim(out)
		}
	}
	b.refit()
	ticket := b.store.Submit(store.Change{State: b.saved()})
	b.signalRoom()
	b.mu.Unlock()
	if err := awaitDurable(ctx, ticket); err != nil {
		return fmt.Errorf("storing the registration of the trainer: %w", err)
	}
	return nil
}

// refit sorts groups again into those that fit the batch size and those that wait for a larger one.
func (b *state) refit() {
	size := int(b.doc.Trainer.BatchSize)
	waiting := b.parked
	b.parked = nil
	waiting = append(waiting, b.queue.Remove(func(it *queue.Item) bool { return it.Size > size })...)
	sortByPlace(waiting)
	for _, it := range waiting {
		b.push(it)
	}
	if n := len(b.parked); n > 0 {
		b.cfg.Log.Warn(
			"groups that are larger than the trainer's batch wait until a trainer registers with a larger batch_size",
			"groups",
			n,
			"batch_size",
			size,
		)
	}
}

// setVersion records which policy version the trainer has reached. Groups that are too old for it are dropped and
// counted; the version never goes back, except by a reset.
func (b *state) setVersion(ctx context.Context, version int64, stalest *int64, inFlight string) error {
	b.mu.Lock()
	if stalest != nil {
		b.doc.Stalest = stalest
	}
	if inFlight != "" {
		b.doc.Keeps = inFlight == sdksync.Keep
	}
	b.doc.Version = max(b.doc.Version, version)
	change := store.Change{State: b.saved()}
	if b.staleness() >= 0 {
		stale := func(it *queue.Item) bool { return b.stale(it.MinVersion) }
		old := b.queue.Remove(stale)
		for _, buffer := range b.buffers {
			old = append(old, buffer.Remove(stale)...)
		}
		for i := range old {
			b.counts.drop(old[i].Env, "stale")
			b.record.Drop(samples.Line{ID: old[i].ID, Reason: "stale"})
			b.traceDrop(old[i].ID, "stale")
			b.hold(&old[i], -1)
			change.End = append(change.End, old[i].ID)
		}
		if len(old) > 0 {
			b.signalRoom()
		}
	}
	ticket := b.store.Submit(change)
	b.mu.Unlock()
	if err := awaitDurable(ctx, ticket); err != nil {
		return fmt.Errorf("storing policy version %d: %w", version, err)
	}
	return nil
}

// stale reports whether a group's oldest tokens are too old for the trainer.
func (b *state) stale(oldest int64) bool {
	limit := b.staleness()
	return limit >= 0 && oldest >= 0 && b.doc.Version-oldest > limit
}

// staleness is the limit in force, the tighter of the configured one and the one that came with the version; -1: none.
func (b *state) staleness() int64 {
	limit := int64(-1)
	if b.cfg.LimitStaleness {
		limit = max(-1, b.cfg.MaxStaleness)
	}
	if posted := b.doc.Stalest; posted != nil && (limit < 0 || *posted < limit) {
		limit = *posted
	}
	return limit
}

// reset deletes everything but max_token_len, checkpoint_dir and the latest example, as run-api does.
func (b *state) reset(ctx context.Context) error {
	b.mu.Lock()
	var change store.Change
	gone := func(it *queue.Item) bool {
		change.End = append(change.End, it.ID)
		b.hold(it, -1)
		return true
	}
	b.queue.Remove(gone)
	for _, buffer := range b.buffers {
		buffer.Remove(gone)
	}
	for i := range b.parked {
		gone(&b.parked[i])
	}
	for _, out := range b.batches {
		for i := range out.items {
			gone(&out.items[i])
		}
		change.Ended = append(change.Ended, out.number)
	}
	b.queue, b.parked = queue.New(b.weights()), nil
	clear(b.buffers)
	clear(b.batches)
	clear(b.seen)
	b.doc = doc{Instance: b.doc.Instance, NextBatch: b.doc.NextBatch, Version: -1,
		MaxTokenLen: b.doc.MaxTokenLen, Checkpoints: b.doc.Checkpoints}
	change.State = b.saved()
	ticket := b.store.Submit(change)
	b.signalRoom()
	b.mu.Unlock()
	if err := awaitDurable(ctx, ticket); err != nil {
		return fmt.Errorf("delete the stored trajectories: %w", err)
	}
	return nil
}
