package environment

import (
	"context"
	"encoding/binary"
	"hash/fnv"
)

// Seeded is a Config with a seed.
type Seeded interface {
	// SamplingSeed is what the seeds of requests are made of, with deterministic = true.
	SamplingSeed() int64
	// Repeats reports that equal seeds give equal tasks and that equal completions have equal scores.
	Repeats() bool
}

// order gives the groups of a deterministic environment their turns. The loop of rollouts alone uses it.
type order struct {
	seed          int64
	tasks         int64         // that have got a turn
	taken, posted chan struct{} // of the last turn
}

func newOrder(name string, config any) *order {
	o := &order{taken: make(chan struct{}), posted: make(chan struct{})}
	close(o.taken)
	close(o.posted)
	var seed int64
	if s, ok := config.(Seeded); ok {
		seed = s.SamplingSeed()
	}
	if c, ok := config.(Config); ok && c.settings().RequestSeed != nil {
		seed = *c.settings().RequestSeed
	}
	o.seed = mix(seed, []byte(name))
	return o
}

// turn is the place of a group: its task is taken after that of the group before, and it is posted after that group. A
// nil turn waits for nothing and seeds nothing.
type turn struct {
	seed             int64
	mayTake, mayPost <-chan struct{}
	took, posted     chan struct{}
}

// next is the turn of the next group; nil without an order.
func (o *order) next() *turn {
	if o == nil {
		return nil
	}
	t := &turn{seed: mixNumber(o.seed, o.tasks), mayTake: o.taken, mayPost: o.posted,
		took: make(chan struct{}), posted: make(chan struct{})}
	o.tasks++
	o.taken, o.posted = t.took, t.posted
	return t
}

func (t *turn) awaitTask(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return await(ctx, t.mayTake)
}

func (t *turn) awaitPost(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return await(ctx, t.mayPost)
}

// taken lets the next group take its task.
func (t *turn) taken() {
	if t != nil {
		close(t.took)
	}
}

// end lets the next group be posted, once all before it are.
func (t *turn) end(ctx context.Context) {
	if t != nil {
		_ = await(ctx, t.mayPost)
		close(t.posted)
	}
}

// seeded is the sampling of the group's requests.
func (t *turn) seeded(p sampling) sampling {
	if t != nil {
		p.Seed = &t.seed
	}
	return p
}

// seededFor has a seed of its own for one of several rollouts or turns, if it has a seed.
func (p sampling) seededFor(number int64) sampling {
	if p.Seed != nil {
		seed := mixNumber(*p.Seed, number)
		p.Seed = &seed
	}
	return p
}

// seededForAgent does the same for one of several agents.
func (p sampling) seededForAgent(name string) sampling {
	if p.Seed != nil {
		seed := mix(*p.Seed, []byte(name))
		p.Seed = &seed
	}
	return p
}

// mixNumber is mix with a number.
func mixNumber(seed, n int64) int64 {
	return mix(seed, binary.LittleEndian.AppendUint64(nil, uint64(n)))
}

// seedBits bounds seeds: they are not negative, and some engines read them as 32 bits.
const seedBits = 31

// mix makes a seed of another and of what it is for.
func mix(seed int64, of []byte) int64 {
	h := fnv.New64a()
	_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(seed)))
	_, _ = h.Write(of)
	return int64(h.Sum64() >> (64 - seedBits))
}

func await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
