package queue

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// fill makes a queue of groups of the given sizes, of one environment or of several.
func fill(weight func(int) float64, sizes []int, envs []int) *Queue {
	q := New(weight)
	for i, size := range sizes {
		env := 0
		if envs != nil {
			env = envs[i]
		}
		q.Add(Item{ID: uint64(i + 1), Place: uint64(i + 1), Env: env, Size: size, Bytes: 10, Tokens: size})
	}
	return q
}

func ids(items []Item) []int {
	var out []int
	for _, it := range items {
		out = append(out, int(it.ID)-1)
	}
	return out
}

func TestPick(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		sizes  []int
		target int
		want   []int // indexes; nil for no batch
	}{
		{"the oldest that add up", []int{4, 4, 4}, 8, []int{0, 1}},
		{"not enough", []int{4, 3}, 8, nil},
		{"mixed sizes", []int{4, 2, 1, 1}, 8, []int{0, 1, 2, 3}},
		{"an odd head that has no partner does not block", []int{5, 4, 4}, 8, []int{1, 2}},
		{"an odd head that has one is served first", []int{5, 4, 4, 3}, 8, []int{0, 3}},
		{"a younger group overtakes only where it must", []int{3, 3, 3, 2}, 8, []int{0, 1, 3}},
		{"one group is a batch", []int{1, 8}, 8, []int{1}},
		{"groups larger than the batch are passed over", []int{9, 8}, 8, []int{1}},
		{"sizes that do not divide", []int{3, 3, 3, 7}, 10, []int{0, 3}},
		{"nothing adds up", []int{3, 3, 3}, 8, nil},
		{"empty", nil, 8, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			q := fill(nil, test.sizes, nil)
			if got := ids(q.Pick(test.target, nil)); !slices.Equal(got, test.want) {
				t.Errorf("picked %v of %v for %d, expected %v", got, test.sizes, test.target, test.want)
			}
		})
	}
}

func TestMinimumsAreKeptAndOtherwiseNothingIsTaken(t *testing.T) {
	t.Parallel()
	claim := []Minimum{{Env: 1, Rollouts: 4}}
	q := fill(nil, []int{2, 2, 2, 2, 2}, []int{0, 0, 0, 0, 1})
	if got := q.Pick(8, claim); got != nil {
		t.Fatalf("picked %v although environment 1 has 2 of the 4 rollouts it claims", ids(got))
	}
	q.Add(Item{ID: 6, Place: 6, Env: 1, Size: 2})
	if got := ids(q.Pick(8, claim)); !slices.Equal(got, []int{0, 1, 4, 5}) {
		t.Errorf("picked %v, expected the two oldest and the two claimed", got)
	}
}

func TestWeightsShapeTheMix(t *testing.T) {
	t.Parallel()
	weights := map[int]float64{0: 3, 1: 1}
	q := New(func(env int) float64 { return weights[env] })
	for i := range 200 { // environment 1 is ahead: without weights it would be served alone for a while
		q.Add(Item{ID: uint64(i + 1), Place: uint64(i + 1), Env: 1 - i/100, Size: 4})
	}
	count := map[int]int{}
	for range 10 {
		for _, it := range q.Pick(16, nil) {
			count[it.Env]++
		}
	}
	if count[0] < 28 || count[0] > 32 {
		t.Errorf("of 40 groups environment 0 with weight 3 gave %d and environment 1 with weight 1 gave %d, expected "+
			"about 30 and 10", count[0], count[1])
	}
	// An environment that was idle gets its share from now on, without compensation.
	q.Add(Item{ID: 300, Place: 300, Env: 2, Size: 4})
	weights[2] = 1
	picked := q.Pick(16, nil)
	if !slices.ContainsFunc(picked, func(it Item) bool { return it.Env == 2 }) {
		t.Errorf("the newcomer is not in the next batch %v", ids(picked))
	}
}

func TestRemoveForgetsNothingElse(t *testing.T) {
	t.Parallel()
	q := fill(nil, []int{1, 2, 1, 2, 4}, nil)
	removed := q.Remove(func(it *Item) bool { return it.Size == 1 })
	if len(removed) != 2 || q.Total() != (Totals{Groups: 3, Rollouts: 8, Tokens: 8, Bytes: 30}) || q.LargestGroup() != 4 {
		t.Errorf("removed %v, left %+v", ids(removed), q.Total())
	}
	if got := ids(q.Pick(8, nil)); !slices.Equal(got, []int{1, 3, 4}) {
		t.Errorf("picked %v", got)
	}
}

func TestPutBackRestoresTheOrder(t *testing.T) {
	t.Parallel()
	q := fill(func(int) float64 { return 1 }, []int{2, 2, 2, 2, 2}, nil)
	first := q.Pick(4, nil)
	q.PutBack(first[1])
	q.PutBack(first[0])
	if got := ids(q.Pick(10, nil)); !slices.Equal(got, []int{0, 1, 2, 3, 4}) {
		t.Errorf("picked %v", got)
	}
}

// exists says by brute force whether some choice of groups has the exact size and the minimums.
func exists(sizes, envs []int, target int, minimums []Minimum) bool {
	for mask := range 1 << len(sizes) {
		sum, by := 0, map[int]int{}
		for i, size := range sizes {
			if mask>>i&1 == 1 {
				sum += size
				by[envs[i]] += size
			}
		}
		ok := sum == target
		for _, m := range minimums {
			ok = ok && by[m.Env] >= m.Rollouts
		}
		if ok {
			return true
		}
	}
	return false
}

// earliest is the choice that prefers older groups, by brute force: the lexicographically first one.
func earliest(sizes []int, target int) []int {
	var best []int
	for mask := range 1 << len(sizes) {
		sum := 0
		var chosen []int
		for i, size := range sizes {
			if mask>>i&1 == 1 {
				sum += size
				chosen = append(chosen, i)
			}
		}
		if sum == target && (best == nil || slices.Compare(chosen, best) < 0) {
			best = chosen
		}
	}
	return best
}

// TestPickProperties: exact sizes, nothing lost or repeated, a batch whenever one exists, minimums kept, each
// environment in order.
func TestPickProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 12).Draw(t, "groups")
		target := rapid.IntRange(1, 24).Draw(t, "target")
		sizes := rapid.SliceOfN(rapid.IntRange(1, 9), n, n).Draw(t, "sizes")
		envs := rapid.SliceOfN(rapid.IntRange(-1, 3), n, n).Draw(t, "envs")
		var minimums []Minimum
		for env := range rapid.IntRange(0, 3).Draw(t, "claims") {
			minimums = append(minimums, Minimum{Env: env, Rollouts: rapid.IntRange(0, target).Draw(t,
				fmt.Sprint("claim", env))})
		}
		var weight func(int) float64
		if rapid.Bool().Draw(t, "weighted") {
			weight = func(env int) float64 { return float64(env + 1) }
		}
		q := fill(weight, sizes, envs)
		before := q.Total()
		can := q.CanPick(target, minimums)
		batch := q.Pick(target, minimums)
		if can != exists(sizes, envs, target, minimums) || can != (batch != nil) {
			t.Fatalf("found %v (%v) of sizes %v envs %v for %d with %v", ids(batch), can, sizes, envs, target, minimums)
		}
		sum, seen, by := 0, map[uint64]bool{}, map[int]int{}
		type lane struct{ env, size int }
		last := map[lane]uint64{}
		for _, it := range batch {
			if seen[it.ID] || it.Size != sizes[it.ID-1] || it.Env != envs[it.ID-1] {
				t.Fatalf("group %d is there twice or changed", it.ID)
			}
			if last[lane{it.Env, it.Size}] > it.ID {
				t.Fatalf("environment %d is served out of order: %v", it.Env, ids(batch))
			}
			last[lane{it.Env, it.Size}] = it.ID
			seen[it.ID], sum, by[it.Env] = true, sum+it.Size, by[it.Env]+it.Size
		}
		if batch != nil && sum != target {
			t.Fatalf("the batch has %d rollouts, expected %d", sum, target)
		}
		for _, m := range minimums {
			if batch != nil && by[m.Env] < m.Rollouts {
				t.Fatalf("environment %d has %d of the %d rollouts that it claims", m.Env, by[m.Env], m.Rollouts)
			}
		}
		if batch != nil && weight == nil && minimums == nil {
			got := ids(batch)
			slices.Sort(got)
			if best := earliest(sizes, target); !slices.Equal(got, best) {
				t.Fatalf("picked %v of %v for %d, but %v prefers older groups", got, sizes, target, best)
			}
		}
		left := q.Total()
		if left.Groups != before.Groups-len(batch) || left.Rollouts != before.Rollouts-sum {
			t.Fatalf("%+v before, %+v after taking %d groups", before, left, len(batch))
		}
		q.Each(func(it *Item) {
			if seen[it.ID] {
				t.Fatalf("group %d is taken and still waits", it.ID)
			}
			seen[it.ID] = true
		})
		if len(seen) != n {
			t.Fatalf("%d of %d groups are left or taken", len(seen), n)
		}
	})
}

func BenchmarkPick(b *testing.B) {
	for _, depth := range []int{1000, 1_000_000} {
		b.Run(fmt.Sprint(depth), func(b *testing.B) {
			q := New(func(int) float64 { return 1 })
			next := uint64(0)
			add := func(n int) {
				for range n {
					next++
					q.Add(Item{ID: next, Place: next, Env: int(next % 64), Size: 1 << (next % 4)})
				}
			}
			add(depth)
			for b.Loop() {
				add(len(q.Pick(256, []Minimum{{Env: 3, Rollouts: 64}, {Env: 5, Rollouts: 32}})))
			}
		})
	}
}
