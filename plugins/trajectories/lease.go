package trajectories

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/internal/samples"
	"github.com/recipe-rl/recipe/plugins/trajectories/queue"
	"github.com/recipe-rl/recipe/plugins/trajectories/store"
)

var (
	errUnregistered = errors.New(
		"Trainer not registered. Call /register first.",
	) //nolint:staticcheck // run-api's words
	errNoBatch      = errors.New("queued groups cannot fill a batch exactly")
	errLeaseUnknown = errors.New("this queue never handed out a batch with this id")
	errLeaseLost    = errors.New(
		"the lease ran out and another caller got the batch; only that caller can acknowledge it",
	)
	errLeaseStale = errors.New(
		"the batch was leased early, and a group of it is too old by now; ask for another batch",
	)
)

// lease forms a batch or finds a returned one, and hands it out: for the time of a lease, or, with a lease of 0, until
// delivered is called. A leased batch is durable before lease returns.
//
// early: for a trainer that still trains on the batch before, so that this one is there when it is needed. Until it is
// acknowledged all else goes on as if it were not leased: it counts as waiting, so that no environment samples earlier
// for it, with older weights, and its step is not counted.
func (b *state) lease(ctx context.Context, lease time.Duration, early bool) (*batch, string, error) {
	b.mu.Lock()
	if b.doc.Trainer == nil {
		b.mu.Unlock()
		return nil, "", errUnregistered
	}
	started := b.doc.Started
	if !early {
		b.watch.asked = b.now()
		b.doc.Started = true
	}
	out := b.form()
	if out == nil && early {
		b.mu.Unlock()
		return nil, "", errNoBatch
	}
	if out == nil {
		if b.watch.wanting.IsZero() {
			b.watch.wanting = b.watch.asked
		}
		var ticket *store.Ticket
		if !started {
			ticket = b.store.Submit(store.Change{State: b.saved()})
		}
		b.mu.Unlock()
		if ticket != nil {
			if err := awaitDurable(ctx, ticket); err != nil {
				return nil, "", fmt.Errorf("storing that the trainer has started: %w", err)
			}
		}
		return nil, "", errNoBatch
	}
	if !early {
		b.take(out)
	}
	out.early = early && !out.counted
	out.grant++
	out.lease, out.busy = lease, true
	if lease == 0 {
		b.mu.Unlock()
		return out, "", nil
	}
	ticket := b.store.Submit(store.Change{State: b.saved(), Batches: []store.Batch{
		{Number: out.number, Grant: out.grant, Lease: lease, Groups: out.ids(), Early: out.early}}})
	id := fmt.Sprintf("%s-%d-%d", b.doc.Instance, out.number, out.grant)
	b.mu.Unlock()
	err := awaitDurable(ctx, ticket)
	b.mu.Lock()
	defer b.mu.Unlock()
	out.busy = false
	if err != nil {
		b.reclaim(out)
		return nil, "", fmt.Errorf("storing the lease of a batch: %w", err)
	}
	out.deadline = b.now().Add(lease)
	return out, id, nil
}

// take counts a batch as taken for a step.
func (b *state) take(out *batch) {
	b.watch.wanting, b.watch.left = time.Time{}, b.watch.asked
	if out.counted {
		return
	}
	out.counted, out.early = true, false
	b.doc.Step++
	b.traceBatch(out)
}

// form returns the oldest batch that is not leased, or makes a new one.
func (b *state) form() *batch {
	now := b.now()
	var oldest *batch
	for _, out := range b.batches {
		if !out.busy && !out.deadline.IsZero() && now.After(out.deadline) {
			b.counts.expired++
			b.reclaim(out)
		}
		if !out.busy && out.deadline.IsZero() && (oldest == nil || out.number < oldest.number) {
			oldest = out
		}
	}
	if oldest != nil {
		return oldest
	}
	items := b.queue.Pick(int(b.doc.Trainer.BatchSize), b.minimums())
	if items == nil {
		return nil
	}
	b.doc.NextBatch++
	out := &batch{number: b.doc.NextBatch, items: items}
	b.batches[out.number] = out
	return out
}

// reclaim makes a batch available to the next caller.
func (b *state) reclaim(out *batch) {
	out.busy, out.deadline = false, time.Time{}
}

// delivered ends a plain delivery. When the client did not get all of it, the next caller will.
func (b *state) delivered(ctx context.Context, out *batch, whole bool) error {
	b.mu.Lock()
	if !whole {
		b.reclaim(out)
		if out.counted && out.lease == 0 {
			out.counted = false
			b.doc.Step--
		}
		b.mu.Unlock()
		return nil
	}
	return b.finish(ctx, out)
}

// damaged takes a group that the disk has lost or changed out of a batch, and puts the rest back into the queue. The
// group is counted and named in the log: its post was acknowledged, and only a broken disk or a changed file loses it.
func (b *state) damaged(ctx context.Context, out *batch, id uint64, why error) error {
	b.mu.Lock()
	if b.batches[out.number] != out {
		b.mu.Unlock()
		return nil
	}
	ticket := b.takeApart(out, "damaged", func(it *queue.Item) bool { return it.ID == id })
	b.mu.Unlock()
	b.cfg.Log.Error("a stored group cannot be read and is dropped", "group", id, "error", why)
	return awaitDurable(ctx, ticket)
}

// takeApart ends a batch that nobody gets: groups that are lost are dropped for the reason, the others wait again. It
// is called with the lock.
func (b *state) takeApart(out *batch, reason string, lost func(*queue.Item) bool) *store.Ticket {
	delete(b.batches, out.number)
	change := store.Change{Ended: []uint64{out.number}}
	for i := range out.items {
		it := &out.items[i]
		if !lost(it) {
			b.queue.PutBack(*it)
			continue
		}
		b.hold(it, -1)
		b.counts.drop(it.Env, reason)
		b.record.Drop(samples.Line{ID: it.ID, Reason: reason})
		b.traceDrop(it.ID, reason)
		change.End = append(change.End, it.ID)
	}
	if out.counted {
		b.doc.Step--
	}
	change.State = b.saved()
	b.signalRoom()
	return b.store.Submit(change)
}

// finish deletes a batch that its trainer has acknowledged or received. It is called with the lock and returns without
// it.
func (b *state) finish(ctx context.Context, out *batch) error {
	if b.batches[out.number] != out { // a reset came in between
		b.mu.Unlock()
		return nil
	}
	delete(b.batches, out.number)
	for i := range out.items {
		b.hold(&out.items[i], -1)
		b.counts.out(&out.items[i], b.doc.Version)
	}
	b.recordDelivery(out)
	ticket := b.store.Submit(store.Change{State: b.saved(), End: out.ids(), Ended: []uint64{out.number}})
	b.signalRoom()
	b.mu.Unlock()
	if err := awaitDurable(ctx, ticket); err != nil {
		return fmt.Errorf("storing that batch %d was delivered: %w", out.number, err)
	}
	return nil
}

// ack ends a lease. It may be repeated: the second time says so and changes nothing.
func (b *state) ack(ctx context.Context, id string) (repeated bool, err error) {
	b.mu.Lock()
	out, repeated, err := b.leased(id)
	if out == nil {
		b.mu.Unlock()
		return repeated, err
	}
	if out.early {
		stale := func(it *queue.Item) bool { return b.stale(it.MinVersion) }
		if slices.ContainsFunc(out.items, func(it queue.Item) bool { return stale(&it) }) {
			ticket := b.takeApart(out, "stale", stale)
			b.mu.Unlock()
			return false, errors.Join(errLeaseStale, awaitDurable(ctx, ticket))
		}
		b.watch.asked = b.now()
		b.take(out)
	}
	return false, b.finish(ctx, out)
}

// giveBack ends a lease of an unused batch: the next caller gets it.
func (b *state) giveBack(id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	out, _, err := b.leased(id)
	if out != nil {
		b.reclaim(out)
	}
	return err
}

// leased finds the batch of a lease id. Numbers are given out once and in order, so a number below the next one that
// is not out any more has been ended.
func (b *state) leased(id string) (out *batch, ended bool, err error) {
	number, grant, err := b.leaseID(id)
	if err != nil {
		return nil, false, err
	}
	out = b.batches[number]
	switch {
	case out == nil:
		return nil, true, nil
	case out.grant != grant || out.busy:
		return nil, false, errLeaseLost
	}
	return out, false, nil
}

// leaseID reads a lease id: the number of its batch, and how often that had been handed out. It is called with the
// lock.
func (b *state) leaseID(id string) (number uint64, grant int, err error) {
	parts := strings.Split(id, "-")
	if len(parts) != 3 || parts[0] != b.doc.Instance {
		return 0, 0, errLeaseUnknown
	}
	number, err1 := strconv.ParseUint(parts[1], 10, 64)
	grant, err2 := strconv.Atoi(parts[2])
	if err1 != nil || err2 != nil || number == 0 || number > b.doc.NextBatch {
		return 0, 0, errLeaseUnknown
	}
	return number, grant, nil
}
