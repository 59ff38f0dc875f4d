package queue

import "container/heap"

// Minimum is an environment's claim on every batch.
type Minimum struct {
	Env      int
	Rollouts int
}

// Pick removes the next batch of exactly target rollouts from the queue, in its order. It returns nil and changes
// nothing when no choice of waiting groups adds up, or when a minimum cannot be kept.
func (q *Queue) Pick(target int, minimums []Minimum) []Item {
	s := q.selection(target, minimums)
	if s == nil {
		return nil
	}
	batch := make([]Item, 0, target)
	for s.left > 0 {
		it := s.next()
		q.served = max(q.served, it.key)
		q.account(&it, -1)
		batch = append(batch, it)
	}
	q.tidy()
	return batch
}

// CanPick reports whether Pick would find a batch.
func (q *Queue) CanPick(target int, minimums []Minimum) bool {
	return q.selection(target, minimums) != nil
}

// selection is the state of choosing one batch: the groups are visited from the oldest, and each is taken if the rest
// can still be completed exactly. A known solution (the witness) answers most of these questions without solving.
type selection struct {
	problem
	witness []int
	left    int
	lanes   laneHeap
	index   map[*lane]int // the class of each lane
}

func (q *Queue) selection(target int, minimums []Minimum) *selection {
	if target <= 0 || q.total.Rollouts < target {
		return nil
	}
	s := &selection{left: target, index: map[*lane]int{}}
	s.target = target
	party := map[int]int{}
	s.minimum = []int{0} // of all without a claim
	for _, m := range minimums {
		if m.Rollouts > 0 {
			party[m.Env] = len(s.minimum)
			s.minimum = append(s.minimum, m.Rollouts)
		}
	}
	classes := map[[2]int]int{}
	for _, l := range q.order {
		if l.len() == 0 || l.size > target {
			continue
		}
		k := [2]int{party[l.env], l.size}
		i, ok := classes[k]
		if !ok {
			i = len(s.classes)
			classes[k] = i
			s.classes = append(s.classes, class{size: l.size, party: k[0]})
		}
		s.classes[i].hi += l.len()
		s.index[l] = i
		s.lanes = append(s.lanes, l)
	}
	var ok bool
	if s.witness, ok = s.solve(); !ok {
		return nil
	}
	heap.Init(&s.lanes)
	return s
}

// next takes the oldest group that an exact batch can contain.
func (s *selection) next() Item {
	for {
		l := s.lanes[0]
		i := s.index[l]
		c := &s.classes[i]
		if !s.allows(i) {
			// A group that is taken later cannot make room for this class: if it fitted then, it would fit now.
			c.hi = c.lo
			heap.Pop(&s.lanes)
			continue
		}
		c.lo++
		s.left -= c.size
		it := l.pop()
		if l.len() == 0 {
			heap.Pop(&s.lanes)
		} else {
			heap.Fix(&s.lanes, 0)
		}
		return it
	}
}

// allows reports whether one more of class i can be taken, and updates the witness to match.
func (s *selection) allows(i int) bool {
	c := &s.classes[i]
	switch {
	case c.lo == c.hi:
		return false
	case s.witness[i] > c.lo:
		return true
	}
	c.lo++
	witness, ok := s.solve()
	c.lo--
	if ok {
		s.witness = witness
	}
	return ok
}

// laneHeap orders lanes by the place of their first group.
type laneHeap []*lane

func (h laneHeap) Len() int           { return len(h) }
func (h laneHeap) Less(i, j int) bool { return h[i].front().before(h[j].front()) }
func (h laneHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push is part of heap.Interface.
func (h *laneHeap) Push(x any) { *h = append(*h, x.(*lane)) }

// Pop is part of heap.Interface.
func (h *laneHeap) Pop() any {
	old := *h
	l := old[len(old)-1]
	*h = old[:len(old)-1]
	return l
}
