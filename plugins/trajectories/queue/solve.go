package queue

import "math/bits"

// class is a set of interchangeable groups: equal size, equal claim on a minimum.
type class struct {
	size  int
	party int // index into problem.minimum
	lo    int // how many are taken already
	hi    int // how many may be taken at most
}

// problem asks for counts n with lo ≤ n ≤ hi for each class, so that the sizes add up to target and every party has
// at least its minimum.
type problem struct {
	classes []class
	minimum []int // in rollouts, by party
	target  int
}

// sums is a set of reachable sums, one bit each.
type sums []uint64

func newSums(target int) sums { return make(sums, target/64+1) }

func (s sums) has(i int) bool { return i >= 0 && i/64 < len(s) && s[i/64]>>(i%64)&1 == 1 }
func (s sums) set(i int)      { s[i/64] |= 1 << (i % 64) }

// or adds other shifted by n.
func (s sums) or(other sums, n int) {
	words, shift := n/64, n%64
	for i := len(s) - 1; i >= words; i-- {
		v := other[i-words] << shift
		if shift > 0 && i > words {
			v |= other[i-words-1] >> (64 - shift)
		}
		s[i] |= v
	}
}

// below clears every sum under n.
func (s sums) below(n int) {
	for i := range s {
		switch {
		case (i+1)*64 <= n:
			s[i] = 0
		case i*64 < n:
			s[i] &^= 1<<(n-i*64) - 1
		}
	}
}

func (s sums) each(f func(i int) bool) {
	for w, word := range s {
		for word != 0 {
			b := bits.TrailingZeros64(word)
			if !f(w*64 + b) {
				return
			}
			word &= word - 1
		}
	}
}

// solve returns one choice of counts, or false when there is none. It is a subset sum by party, and a sumset over
// parties: the work is classes·log(hi)·target/64 plus parties·target²/64.
func (p *problem) solve() ([]int, bool) {
	rest := p.target
	short := append([]int(nil), p.minimum...)
	for _, c := range p.classes {
		rest -= c.lo * c.size
		short[c.party] -= c.lo * c.size
	}
	if rest < 0 {
		return nil, false
	}
	// within[party] holds, class by class, which sums the party's free groups reach.
	within := make([][]sums, len(p.minimum))
	members := make([][]int, len(p.minimum))
	for i, c := range p.classes {
		members[c.party] = append(members[c.party], i)
	}
	total := make([]sums, len(p.minimum)+1)
	total[0] = newSums(rest)
	total[0].set(0)
	for party := range p.minimum {
		steps := make([]sums, len(members[party])+1)
		steps[0] = newSums(rest)
		steps[0].set(0)
		for k, i := range members[party] {
			steps[k+1] = p.classes[i].reach(steps[k], rest)
		}
		within[party] = steps
		own := append(sums(nil), steps[len(steps)-1]...)
		own.below(short[party])
		total[party+1] = newSums(rest)
		if party == 0 {
			copy(total[1], own)
			continue
		}
		own.each(func(n int) bool {
			if n <= rest {
				total[party+1].or(total[party], n)
			}
			return true
		})
	}
	if !total[len(p.minimum)].has(rest) {
		return nil, false
	}
	counts := make([]int, len(p.classes))
	for party := len(p.minimum) - 1; party >= 0; party-- {
		share := -1
		within[party][len(members[party])].each(func(n int) bool {
			if n >= short[party] && total[party].has(rest-n) {
				share = n
				return false
			}
			return n <= rest
		})
		rest -= share
		for k := len(members[party]) - 1; k >= 0; k-- {
			i := members[party][k]
			c := p.classes[i]
			n := 0
			for !within[party][k].has(share - n*c.size) {
				n++
			}
			counts[i] = c.lo + n
			share -= n * c.size
		}
	}
	return counts, true
}

// reach adds to a set of sums what up to hi-lo groups of the class can add, by doubling.
func (c *class) reach(from sums, limit int) sums {
	out := append(sums(nil), from...)
	free := min(c.hi-c.lo, limit/c.size)
	for chunk := 1; free > 0; chunk *= 2 {
		n := min(chunk, free)
		out.or(append(sums(nil), out...), n*c.size)
		free -= n
	}
	return out
}
