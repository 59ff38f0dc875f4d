package trajectories

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/internal/samples"
	"github.com/recipe-rl/recipe/plugins/trajectories/queue"
	"github.com/recipe-rl/recipe/plugins/trajectories/store"
	"github.com/recipe-rl/recipe/sdk/trace"
)

// state is the server's memory: who is registered, what waits, what is out under a lease. One lock guards it; nothing
// under the lock waits for the disk or the network. Changes are submitted to the store in the order in which they
// happened, so that what a crash leaves behind is always a state that existed.
type state struct {
	cfg   Config
	store store.Store
	now   func() time.Time // monotonic: leases and timeouts ignore changes of the clock

	mu      sync.Mutex
	doc     doc
	queue   *queue.Queue
	buffers map[int]*queue.Queue
	parked  []queue.Item // larger than the registered batch: they wait for a trainer with larger batches
	batches map[uint64]*batch
	nextID  uint64
	held    queue.Totals // what the bounds count: arriving, buffered, waiting and out
	room    chan struct{}
	latest  latest
	seen    map[int]time.Time // time of an environment's last request
	counts  counts
	keys    idempotency
	record  *samples.Writer           // nil: none
	given   []delivery                // newest batches, for what their trainer computes
	traced  map[uint64]*trace.Ongoing // groups that wait, by id, if they are traced

	watch     watch
	seenGroup map[int]time.Time // when a group of an environment was last kept
}

// doc is the part of the state that is small enough to be written whole.
type doc struct {
	Instance    string        `json:"instance"` // distinguishes this queue's lease ids from another's
	Trainer     *registration `json:"trainer,omitempty"`
	MaxTokenLen int64         `json:"max_token_len"`  // outlives a reset, like run-api's
	Checkpoints string        `json:"checkpoint_dir"` // the same
	Started     bool          `json:"started"`        // a trainer has asked for a batch
	Step        int64         `json:"step"`           // batches delivered, plus the first trainer's starting step
	Version     int64         `json:"version"`        // the trainer's policy version, or -1
	// limit that came with the version; the tighter of it and Config's counts
	Stalest   *int64        `json:"max_staleness,omitempty"`
	Keeps     bool          `json:"keeps,omitempty"` // answers in flight go on when new weights come
	NextBatch uint64        `json:"next_batch"`
	Envs      []environment `json:"envs"`
}

// registration is what a trainer reports about itself.
type registration struct {
	Group        string `json:"group"`
	Project      string `json:"project"`
	BatchSize    int64  `json:"batch_size"`
	SaveInterval int64  `json:"save_checkpoint_interval"`
	NumSteps     int64  `json:"num_steps"`
	// RolloutParts: it trains on rollouts of several sequences.
	RolloutParts bool `json:"rollout_parts,omitempty"`
}

// batch is a formed batch on its way to a trainer.
type batch struct {
	number   uint64
	grant    int
	items    []queue.Item
	lease    time.Duration // 0 for a plain delivery
	deadline time.Time     // of the lease; zero while the batch is not leased
	counted  bool          // its step is counted
	busy     bool          // a plain delivery is under way
	early    bool          // leased while another one trains: until it is acknowledged it counts as waiting
}

func (b *batch) ids() []uint64 {
	ids := make([]uint64, len(b.items))
	for i := range b.items {
		ids[i] = b.items[i].ID
	}
	return ids
}

func newState(ctx context.Context, cfg Config, s store.Store) (*state, error) {
	b := &state{
		cfg: cfg, store: s, now: time.Now, traced: map[uint64]*trace.Ongoing{},
		doc:     doc{MaxTokenLen: -1, Version: -1},
		buffers: map[int]*queue.Queue{}, batches: map[uint64]*batch{},
		room: make(chan struct{}), seen: map[int]time.Time{}, counts: newCounts(),
	}
	b.queue = queue.New(b.weights())
	b.watch.opened, b.seenGroup = b.now(), map[int]time.Time{}
	return b, b.recover(ctx)
}

// weights is nil when groups go out in order of arrival.
func (b *state) weights() func(int) float64 {
	if b.cfg.Batching == "compatible" {
		return nil
	}
	return func(env int) float64 {
		if env < 0 || env >= len(b.doc.Envs) {
			return 1
		}
		return b.doc.Envs[env].Weight
	}
}

// recover rebuilds the state from the store. Leases start again in full: a restart must not hand out a batch that its
// trainer still works on, and the clock cannot be trusted to measure how long the restart took.
func (b *state) recover(ctx context.Context) error {
	items := map[uint64]queue.Item{}
	var order, buffered []queue.Item
	snapshot, err := b.store.Scan(ctx, func(id uint64, m store.Meta) error {
		it := queue.Item{ID: id, Place: m.Place, Env: m.Env, Size: m.Size, Tokens: m.Tokens, Bytes: m.Bytes,
			Longest: m.Longest, MinVersion: m.MinVersion, MaxVersion: m.MaxVersion}
		b.hold(&it, 1)
		if b.nextID = max(b.nextID, id, m.Place); m.Place == 0 {
			buffered = append(buffered, it)
		} else {
			order = append(order, it)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading the stored trajectories back: %w", err)
	}
	b.nextID = max(b.nextID, snapshot.LastID)
	b.keys = newIdempotency(snapshot.Keys)
	if snapshot.State != nil {
		if err := json.Unmarshal(snapshot.State, &b.doc); err != nil {
			return fmt.Errorf("reading the stored state of the trajectory queue: %w", err)
		}
	}
	if b.doc.Instance == "" {
		id := make([]byte, 4)
		_, _ = rand.Read(id) // never fails
		b.doc.Instance = hex.EncodeToString(id)
	}
	now := b.now()
	for i := range b.doc.Envs {
		b.seen[i] = now
	}
	for _, it := range order {
		items[it.ID] = it
	}
	for _, saved := range snapshot.Batches {
		out := &batch{
			number:   saved.Number,
			grant:    saved.Grant,
			lease:    saved.Lease,
			deadline: now.Add(saved.Lease),
			counted:  !saved.Early,
			early:    saved.Early,
		}
		for _, id := range saved.Groups {
			if it, ok := items[id]; ok {
				out.items = append(out.items, it)
				delete(items, id)
			}
		}
		b.batches[out.number] = out
		b.doc.NextBatch = max(b.doc.NextBatch, out.number)
	}
	sortByPlace(order)
	for _, it := range order {
		if _, waiting := items[it.ID]; waiting {
			b.push(it)
		}
	}
	for _, it := range buffered {
		b.place(it)
	}
	return nil
}

// push makes a group available to batches.
func (b *state) push(it queue.Item) {
	if t := b.doc.Trainer; t != nil && int64(it.Size) > t.BatchSize {
		b.parked = append(b.parked, it)
		return
	}
	b.queue.Add(it)
}

// latest is the group that arrived last, with the memory that holds its JSON.
type latest struct {
	json []byte
	in   *scratch
}

// remember makes a group the latest example. It keeps the memory that holds the group, and returns that of the previous
// one for reuse: copying each group would cost more than everything else done with it here.
func (b *state) remember(json []byte, in *scratch) (free *scratch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	free = b.latest.in
	b.latest = latest{json, in}
	return free
}

// hold adds a group to what the bounds count, or takes it away.
func (b *state) hold(it *queue.Item, sign int) {
	b.held.Groups += sign
	b.held.Rollouts += sign * it.Size
	b.held.Tokens += int64(sign * it.Tokens)
	b.held.Bytes += int64(sign) * it.Bytes
}

func totalOf(items []queue.Item) queue.Totals {
	var t queue.Totals
	for i := range items {
		t.Groups++
		t.Rollouts += items[i].Size
		t.Tokens += int64(items[i].Tokens)
		t.Bytes += items[i].Bytes
	}
	return t
}

// saved is the state document for the store.
func (b *state) saved() json.RawMessage {
	text, err := json.Marshal(&b.doc)
	if err != nil {
		panic(fmt.Sprintf("trajectories: the state does not marshal: %v", err)) // numbers and strings always marshal
	}
	return text
}

// signalRoom wakes the posts that wait for room.
func (b *state) signalRoom() {
	close(b.room)
	b.room = make(chan struct{})
}

// awaitDurable waits for a ticket without regard to the client: what was submitted happens, and the state in memory
// must follow.
func awaitDurable(ctx context.Context, t *store.Ticket) error {
	return t.Wait(context.WithoutCancel(ctx))
}
