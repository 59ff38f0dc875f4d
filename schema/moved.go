package schema

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/hashicorp/hcl/v2"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/diagnostic"
)

// Moved is a moved block, with the addresses that it has in the whole recipe: one for each instance of its module.
type Moved struct {
	addr.Move

	Range hcl.Range
}

// maxMoved bounds the moves of a recipe, over all instances of its modules.
const maxMoved = 10_000

// resolveMoved collects the moves of all modules and reports those that cannot be followed.
func resolveMoved(modules []*module, blocks []*Block) (moved []Moved, diags hcl.Diagnostics) {
	for _, m := range modules {
		for _, d := range m.source.Moved {
			for _, inst := range m.instances {
				if len(moved) == maxMoved {
					diags = append(diags, diagnostic.Problem(d.Header, "Too many moved blocks",
						"A recipe has at most "+strconv.Itoa(maxMoved)+" moved blocks, over all instances of its modules."))
					return moved, diags
				}
				moved = append(moved, Moved{Move: d.Move.In(inst.path), Range: d.Header})
			}
		}
	}
	if len(moved) == 0 {
		return moved, diags
	}
	first := map[addr.Target]hcl.Range{}
	next := map[addr.Target]addr.Target{}
	for _, m := range moved {
		if at, twice := first[m.From]; twice {
			diags = append(diags, diagnostic.Problem(m.Range, "Moved twice",
				fmt.Sprintf("%s is already moved at %s. Remove one of the two.", m.From, diagnostic.At(at))))
			continue
		}
		first[m.From], next[m.From] = m.Range, m.To
	}
	for _, m := range moved {
		diags = append(diags, checkMoved(m, blocks, next)...)
	}
	return moved, diags
}

// checkMoved reports a move that leads back, or whose block is still declared.
func checkMoved(m Moved, blocks []*Block, next map[addr.Target]addr.Target) hcl.Diagnostics {
	for to, seen := m.To, map[addr.Target]bool{}; !seen[to]; to = next[to] {
		if to == m.From {
			return hcl.Diagnostics{diagnostic.Problem(m.Range, "Moved in a circle",
				fmt.Sprintf("The moved blocks lead from %s back to it. Remove one of them.", m.From))}
		}
		if seen[to] = true; next[to] == (addr.Target{}) {
			break
		}
	}
	if i := slices.IndexFunc(blocks, func(b *Block) bool { _, ok := m.Apply(b.Addr); return ok }); i >= 0 {
		return hcl.Diagnostics{diagnostic.Problem(m.Range, "Moved and still declared",
			fmt.Sprintf("%s is declared at %s, so it has not moved to %s. Remove the moved block, or the declaration.",
				blocks[i].Addr, diagnostic.At(blocks[i].Range), m.To))}
	}
	return nil
}

// Move returns where a recorded block is now; ok is false when it did not move.
func (r *Recipe) Move(a addr.Block) (to addr.Block, ok bool) {
	moves := make([]addr.Move, len(r.Moved))
	for i, m := range r.Moved {
		moves[i] = m.Move
	}
	return addr.Follow(moves, a)
}
