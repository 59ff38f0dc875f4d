package trajectories

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/recipe-rl/recipe/plugins/trajectories/group"
	"github.com/recipe-rl/recipe/plugins/trajectories/queue"
	"github.com/recipe-rl/recipe/plugins/trajectories/store"
	"github.com/recipe-rl/recipe/sdk/trace"
)

// errFull reports that the queue stayed full longer than a post may be held.
var errFull = errors.New("the trajectory queue is full and the trainer requests no batch")

// errStarved reports that a full queue takes only groups of environments that owe their share of a batch.
var errStarved = errors.New("the trajectory queue is full, and holds too few groups of the environments that have a " +
	"min_batch_allocation")

// arrival is the reply to one posted group.
type arrival struct {
	buffered bool
	waiting  int // sequences left in the environment's buffer
}

// enqueue makes groups and the key of their post durable, then makes them available. It returns when they survive a
// kill of the process.
func (b *state) enqueue(ctx context.Context, groups []*group.Group, keys []store.Key, span *trace.Ongoing,
) ([]arrival, error) {
	at := time.Now().UnixNano()
	b.mu.Lock()
	if err := b.refuse(groups); err != nil {
		b.mu.Unlock()
		return nil, err
	}
	kept := make([]*queue.Item, len(groups))
	change := store.Change{Keys: keys}
	for i, g := range groups {
		env := b.known(g.Env)
		b.markSeen(env)
		b.counts.in(env, g)
		if b.stale(g.MinVersion) {
			b.counts.drop(env, "stale")
			b.recordStale()
			continue
		}
		b.nextID++
		it := queue.Item{ID: b.nextID, Env: env, Size: g.Size, Tokens: g.Tokens, Bytes: int64(len(g.JSON)),
			Longest: g.Longest, MinVersion: g.MinVersion, MaxVersion: g.MaxVersion}
		if !b.incomplete(&it) {
			it.Place = it.ID
		}
		kept[i] = &it
		b.hold(&it, 1)
		change.Put = append(change.Put, store.Entry{ID: it.ID, Body: g.JSON, Meta: store.Meta{
			Env: it.Env, Size: it.Size, Tokens: it.Tokens, Longest: it.Longest, Bytes: it.Bytes,
			MinVersion: it.MinVersion, MaxVersion: it.MaxVersion, Place: it.Place, At: at}})
	}
	var ticket *store.Ticket
	if len(change.Put)+len(keys) > 0 {
		ticket = b.store.Submit(change)
	}
	b.mu.Unlock()

	var err error
	if ticket != nil {
		err = awaitDurable(ctx, ticket)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]arrival, len(groups))
	for i, it := range kept {
		if it == nil {
			continue
		}
		if err != nil {
			b.hold(it, -1)
			continue
		}
		out[i] = b.place(*it)
	}
	if err != nil {
		b.signalRoom()
		return nil, fmt.Errorf("storing a posted group: %w", err)
	}
	b.recordKept(kept)
	b.recordPosts(groups, kept, at)
	b.traceWaits(kept, span)
	for _, k := range keys {
		b.keys.add(k)
	}
	return out, nil
}

// refuse names the first group that is larger than any batch.
func (b *state) refuse(groups []*group.Group) error {
	if b.doc.Trainer == nil {
		return nil
	}
	for i, g := range groups {
		if int64(g.Size) > b.doc.Trainer.BatchSize {
			at := []any{"body", "tokens"}
			if len(groups) > 1 {
				at = []any{"body", i, "tokens"}
			}
			b.counts.reject("too_large")
			return &group.Invalid{Details: []group.Detail{{Type: "too_long", Loc: at,
				Msg: fmt.Sprintf(
					"A group of %d rollouts can never be part of a batch of %d: lower the environment's group_size or raise "+
						"the trainer's batch_size",
					g.Size,
					b.doc.Trainer.BatchSize,
				),
				Input: g.Size, Ctx: map[string]any{"max_length": b.doc.Trainer.BatchSize, "actual_length": g.Size}}}}
		}
	}
	return nil
}

// incomplete reports whether a group must wait for others of its environment to reach the full group size.
func (b *state) incomplete(it *queue.Item) bool {
	return it.Env >= 0 && it.Env < len(b.doc.Envs) && int64(it.Size) < b.doc.Envs[it.Env].GroupSize
}

// place puts a stored group into the queue, or into its environment's buffer, from which complete sets go on.
func (b *state) place(it queue.Item) arrival {
	if it.Place != 0 || !b.incomplete(&it) {
		if it.Place == 0 {
			b.release([]queue.Item{it})
		} else {
			b.push(it)
		}
		return arrival{}
	}
	buffer := b.buffers[it.Env]
	if buffer == nil {
		buffer = queue.New(nil)
		b.buffers[it.Env] = buffer
	}
	it.Place = it.ID
	buffer.Add(it)
	if set := buffer.Pick(int(b.doc.Envs[it.Env].GroupSize), nil); set != nil {
		b.release(set)
	}
	return arrival{buffered: true, waiting: buffer.Total().Rollouts}
}

// release moves buffered groups to the end of the queue. It does not wait for the store: a crash before that leaves the
// complete set in the buffer, and recovery releases it again.
func (b *state) release(set []queue.Item) {
	places := map[uint64]uint64{}
	for _, it := range set {
		b.nextID++
		it.Place = b.nextID
		places[it.ID] = it.Place
		b.push(it)
	}
	b.store.Submit(store.Change{Place: places})
}

// admit waits until there is room for a post. It holds the post rather than refuse it, because clients drop a group
// after three refusals. It does not wait while no batch can be formed: the missing groups may be in the posts that
// wait. Then the limit is twice the bound, and beyond that, starved, whoever owes its share of a batch is let in: only
// that ends the wait of all others.
func (b *state) admit(ctx context.Context, bytes int64) (starved bool, err error) {
	return b.awaitRoom(ctx, bytes, true)
}

func (b *state) awaitRoom(ctx context.Context, bytes int64, unlessStarved bool) (starved bool, err error) {
	deadline := time.NewTimer(b.cfg.HoldTimeout)
	defer deadline.Stop()
	for {
		b.mu.Lock()
		full := b.full(bytes)
		starved := full && unlessStarved && b.starved()
		room := b.room
		b.mu.Unlock()
		if !full || starved {
			return starved, nil
		}
		select {
		case <-room:
		case <-time.After(time.Second): // a lease may run out, or an environment time out, without a signal
		case <-deadline.C:
			b.count(func(c *counts) { c.reject("full") })
			return false, errFull
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// starved reports that no batch can be formed because an environment's share is missing.
func (b *state) starved() bool {
	return !b.available() && slices.ContainsFunc(b.minimums(), b.owing)
}

func (b *state) owing(m queue.Minimum) bool { return b.queue.Env(m.Env).Rollouts < m.Rollouts }

// owed reports whether one of the groups is of an environment that owes its share.
func (b *state) owed(groups []*group.Group) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.doc.Trainer == nil || slices.ContainsFunc(b.minimums(), func(m queue.Minimum) bool {
		return b.owing(m) && slices.ContainsFunc(groups, func(g *group.Group) bool { return g.Env == m.Env })
	})
}

func (b *state) full(bytes int64) bool {
	held := b.held
	over := func(times int64) bool {
		return int64(held.Groups) >= times*int64(b.cfg.MaxQueueGroups) ||
			held.Bytes > 0 && held.Bytes+bytes > times*b.cfg.MaxQueueBytes
	}
	return over(2) || over(1) && b.available()
}

// available reports whether a trainer could get a batch now, or has one.
func (b *state) available() bool {
	return b.doc.Trainer == nil || len(b.batches) > 0 || b.queue.CanPick(int(b.doc.Trainer.BatchSize), b.minimums())
}

func sortByPlace(items []queue.Item) {
	sort.Slice(items, func(i, j int) bool { return items[i].Place < items[j].Place })
}
