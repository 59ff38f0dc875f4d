package gateway

import (
	"hash/maphash"
	"time"
)

const (
	prefixBlock = 64   // bytes of prompt in a block
	prefixMax   = 64   // blocks looked at
	prefixSlots = 4096 // blocks remembered, a power of two
	prefixSlack = 8    // a replica with the prefix may be this many requests busier than the least busy one
)

// prefixTable remembers which replica last got a prompt's head, so that its prefix cache is used. It is bounded: a new
// block overwrites the one in its slot.
type prefixTable struct {
	seed  maphash.Seed
	slots [prefixSlots]prefixSlot
}

type prefixSlot struct {
	sum     uint64
	replica *replica
}

// sums returns the hash of each block boundary of the prompt's head, and of the whole prompt if it is shorter.
func (t *prefixTable) sums(prompt []byte) []uint64 {
	if len(prompt) == 0 {
		return nil
	}
	n := min((len(prompt)+prefixBlock-1)/prefixBlock, prefixMax)
	out := make([]uint64, n)
	var h maphash.Hash
	h.SetSeed(t.seed)
	for i := range out {
		_, _ = h.Write(prompt[i*prefixBlock : min((i+1)*prefixBlock, len(prompt))]) // a hash never fails
		out[i] = h.Sum64()
	}
	return out
}

// find returns the replica that saw the longest part of the prompt, if that is at least half of it: a short common
// head, such as the opening of a chat template, must not send all requests to one replica.
func (t *prefixTable) find(sums []uint64) *replica {
	for i := len(sums) - 1; i >= len(sums)/2; i-- {
		if s := &t.slots[sums[i]%prefixSlots]; s.sum == sums[i] && s.replica != nil {
			return s.replica
		}
	}
	return nil
}

func (t *prefixTable) put(sums []uint64, r *replica) {
	for _, sum := range sums {
		t.slots[sum%prefixSlots] = prefixSlot{sum, r}
	}
}

func (t *prefixTable) clear() { t.slots = [prefixSlots]prefixSlot{} }

// pickLocked chooses the replica for a call: the one that knows the prompt's head unless it is much busier than others,
// else the least busy. Replicas that already failed this call come last.
func (g *Gateway) pickLocked(c *call, now time.Time) *replica {
	if len(g.replicas) == 1 { // the common case needs no bookkeeping
		if r := g.replicas[0]; g.eligibleLocked(r, now) && g.roomLocked(r, c) {
			return r
		}
		return nil
	}
	least := g.leastLocked(c, c.failed, now)
	if least == nil {
		least = g.leastLocked(c, nil, now)
	}
	if least == nil {
		return nil
	}
	if c.prefix == nil && len(c.prompt) > 0 {
		c.prefix = g.prefixes.sums(c.prompt)
	}
	pick := least
	if r := g.prefixes.find(c.prefix); r != nil && r.inflight <= least.inflight+prefixSlack && g.eligibleLocked(r, now) &&
		g.roomLocked(r, c) && !c.failed[r] {
		pick = r
	}
	g.prefixes.put(c.prefix, pick)
	return pick
}

// leastLocked returns the eligible replica that has room for a call, which may be nil, with the fewest requests in
// flight; of equal ones the one that has served least.
func (g *Gateway) leastLocked(c *call, except map[*replica]bool, now time.Time) *replica {
	var best *replica
	for _, r := range g.replicas {
		if !g.eligibleLocked(r, now) || !g.roomLocked(r, c) || except[r] {
			continue
		}
		if best == nil || r.inflight < best.inflight || (r.inflight == best.inflight && r.served < best.served) {
			best = r
		}
	}
	return best
}
