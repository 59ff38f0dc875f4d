package plan

import (
	"fmt"
	"slices"
	"sort"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
)

// order sorts blocks so that each comes after those it needs; of several that could come next, the first in blocks (the
// recipe's, sorted by address) does. The language has excluded cycles.
func order(blocks []*schema.Block) []*schema.Block {
	index := make(map[addr.Block]int, len(blocks))
	for i, b := range blocks {
		index[b.Addr] = i
	}
	waits := make([]int, len(blocks))
	dependents := make([][]int, len(blocks))
	for i, b := range blocks {
		for _, n := range b.Needs {
			if j, ok := index[n.On]; ok {
				waits[i]++
				dependents[j] = append(dependents[j], i)
			}
		}
	}
	var ready []int // sorted
	for i := range blocks {
		if waits[i] == 0 {
			ready = append(ready, i)
		}
	}
	out := make([]*schema.Block, 0, len(blocks))
	for len(ready) > 0 {
		i := ready[0]
		ready = ready[1:]
		out = append(out, blocks[i])
		for _, d := range dependents[i] {
			if waits[d]--; waits[d] == 0 {
				at, _ := slices.BinarySearch(ready, d)
				ready = slices.Insert(ready, at, d)
			}
		}
	}
	return out
}

// targeted keeps the targets and everything that they need. No targets: everything.
func targeted(blocks []*schema.Block, targets []addr.Block) ([]*schema.Block, error) {
	if len(targets) == 0 {
		return blocks, nil
	}
	byAddr := make(map[addr.Block]*schema.Block, len(blocks))
	instances := map[addr.Block][]addr.Block{}
	for _, b := range blocks {
		byAddr[b.Addr] = b
		instances[b.Addr.Config()] = append(instances[b.Addr.Config()], b.Addr)
	}
	keep := map[addr.Block]bool{}
	var visit func(addr.Block)
	visit = func(a addr.Block) {
		if keep[a] || byAddr[a] == nil {
			return
		}
		keep[a] = true
		for _, n := range byAddr[a].Needs {
			visit(n.On)
		}
	}
	for _, t := range targets {
		found := instances[t]
		if byAddr[t] != nil {
			found = []addr.Block{t}
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("target %s: the recipe declares no such block; it declares %s", t, list(blocks))
		}
		for _, a := range found {
			visit(a)
		}
	}
	var out []*schema.Block
	for _, b := range blocks {
		if keep[b.Addr] {
			out = append(out, b)
		}
	}
	return out, nil
}

func list(blocks []*schema.Block) string {
	names := make([]string, 0, len(blocks))
	for _, b := range blocks {
		names = append(names, b.Addr.String())
	}
	sort.Strings(names)
	if len(names) > 8 {
		return fmt.Sprintf("%v and %d more", names[:8], len(names)-8)
	}
	return fmt.Sprint(names)
}
