// Package queue decides which groups make the next batch. It holds the index of what waits, not the groups themselves,
// does no input or output and uses no clock, so that its guarantees can be tested exhaustively:
//
//   - a batch has exactly the asked number of rollouts, and no group is split, lost or taken twice;
//   - whenever some choice of waiting groups adds up to the batch, one is found, whatever the sizes;
//   - the oldest groups go first: a younger one goes first only where no exact batch exists with the older;
//   - minimum allocations of environments are kept whenever the waiting groups allow it.
//
// The cost of every call depends on the number of distinct (environment, size) pairs and on the batch size, not on how
// many groups wait.
package queue

import (
	"math"
	"slices"
)

// Item is one waiting group.
type Item struct {
	ID     uint64 // unique
	Place  uint64 // the order of arrival in this queue
	Env    int    // the environment's id, or a negative number for none
	Size   int    // rollouts
	Tokens int    // tokens in all sequences
	Bytes  int64  // of its canonical JSON
	// MinVersion and MaxVersion are the oldest and newest policy version of its tokens; negative when unknown.
	MinVersion, MaxVersion int64
	// Longest is the length of the longest sequence in tokens.
	Longest int

	key float64 // position in the order of service, given by Add
}

// before orders groups as they are served.
func (it *Item) before(other *Item) bool {
	return it.key < other.key || it.key == other.key && it.Place < other.Place
}

// lane holds the groups of one environment and one size in their order.
type lane struct {
	env, size int
	items     []Item
	head      int
}

func (l *lane) len() int     { return len(l.items) - l.head }
func (l *lane) front() *Item { return &l.items[l.head] }

func (l *lane) push(it Item) { l.items = append(l.items, it) }

func (l *lane) pop() Item {
	it := l.items[l.head]
	l.head++
	if l.head > 64 && l.head*2 > len(l.items) {
		l.items = append(l.items[:0], l.items[l.head:]...)
		l.head = 0
	}
	return it
}

type laneKey struct{ env, size int }

// Queue is an ordered set of groups. It is not safe for concurrent use.
type Queue struct {
	lanes  map[laneKey]*lane
	order  []*lane // the same lanes in order of creation, for iteration without map order
	counts map[int]int
	envs   map[int]*Totals
	total  Totals
	weight func(env int) float64
	served float64         // the key of the youngest group served so far
	last   map[int]float64 // the key after each environment's last group
}

// Totals counts waiting groups.
type Totals struct {
	Groups, Rollouts int
	Tokens, Bytes    int64
}

func (t *Totals) add(it *Item, sign int) {
	t.Groups += sign
	t.Rollouts += sign * it.Size
	t.Tokens += int64(sign * it.Tokens)
	t.Bytes += int64(sign) * it.Bytes
}

// New makes an empty queue. weight gives each environment's share of what is served while several have groups
// waiting; nil serves strictly in order of arrival.
func New(weight func(env int) float64) *Queue {
	return &Queue{
		lanes: map[laneKey]*lane{}, counts: map[int]int{}, envs: map[int]*Totals{},
		weight: weight, last: map[int]float64{},
	}
}

// minWeight is the least weight of an environment, so that a weight of zero does not mean waiting for ever.
const minWeight = 0.01

// Add appends a group. In a weighted queue its place follows start-time fair queueing: an environment's groups are
// spaced by size over weight, and one that was idle starts where service is now, without credit for the past.
func (q *Queue) Add(it Item) {
	if q.weight == nil {
		it.key = float64(it.Place)
	} else {
		w := q.weight(it.Env)
		if !(w >= minWeight) || math.IsInf(w, 0) {
			w = minWeight
		}
		it.key = max(q.served, q.last[it.Env])
		q.last[it.Env] = it.key + float64(it.Size)/w
	}
	q.lane(it.Env, it.Size).push(it)
	q.account(&it, 1)
}

// PutBack returns a group that Pick took to the place that it had.
func (q *Queue) PutBack(it Item) {
	l := q.lane(it.Env, it.Size)
	at := l.head
	for at < len(l.items) && l.items[at].before(&it) {
		at++
	}
	l.items = slices.Insert(l.items, at, it)
	q.account(&it, 1)
}

func (q *Queue) lane(env, size int) *lane {
	k := laneKey{env, size}
	l := q.lanes[k]
	if l == nil {
		l = &lane{env: env, size: size}
		q.lanes[k] = l
		q.order = append(q.order, l)
	}
	return l
}

func (q *Queue) account(it *Item, sign int) {
	q.total.add(it, sign)
	t := q.envs[it.Env]
	if t == nil {
		t = &Totals{}
		q.envs[it.Env] = t
	}
	t.add(it, sign)
	if q.counts[it.Size] += sign; q.counts[it.Size] == 0 {
		delete(q.counts, it.Size)
	}
}

// Total counts everything that waits.
func (q *Queue) Total() Totals { return q.total }

// Env counts what waits of one environment.
func (q *Queue) Env(env int) Totals {
	if t := q.envs[env]; t != nil {
		return *t
	}
	return Totals{}
}

// Envs calls f for every environment that has had a group here.
func (q *Queue) Envs(f func(env int, t Totals)) {
	for env, t := range q.envs {
		f(env, *t)
	}
}

// LargestGroup is the size of the largest waiting group, 0 when none waits.
func (q *Queue) LargestGroup() int {
	largest := 0
	for size := range q.counts {
		largest = max(largest, size)
	}
	return largest
}

// LargestOf is the size of the largest waiting group of one environment.
func (q *Queue) LargestOf(env int) int {
	largest := 0
	for _, l := range q.order {
		if l.env == env && l.len() > 0 {
			largest = max(largest, l.size)
		}
	}
	return largest
}

// Remove takes out every group for which drop says so, and returns them. It looks at all groups.
func (q *Queue) Remove(drop func(*Item) bool) []Item {
	var out []Item
	for _, l := range q.order {
		kept := l.items[:0]
		for i := l.head; i < len(l.items); i++ {
			if drop(&l.items[i]) {
				out = append(out, l.items[i])
			} else {
				kept = append(kept, l.items[i])
			}
		}
		l.items, l.head = kept, 0
	}
	for i := range out {
		q.account(&out[i], -1)
	}
	q.tidy()
	return out
}

// Each calls f for every waiting group, in no particular order across environments and sizes.
func (q *Queue) Each(f func(*Item)) {
	for _, l := range q.order {
		for i := l.head; i < len(l.items); i++ {
			f(&l.items[i])
		}
	}
}

// tidy deletes empty lanes, so that environments which vary their group size do not accumulate them.
func (q *Queue) tidy() {
	kept := q.order[:0]
	for _, l := range q.order {
		if l.len() > 0 {
			kept = append(kept, l)
		} else {
			delete(q.lanes, laneKey{l.env, l.size})
		}
	}
	clear(q.order[len(kept):])
	q.order = kept
}
