package plan

import (
	"fmt"
	"maps"
	"slices"

	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
)

// Moves returns the new addresses of the recorded blocks that moved blocks of the recipe give another one, by their old
// ones. A block whose new address is taken does not move, which is a finding.
func Moves(r *schema.Recipe, recorded *state.Run) (map[addr.Block]addr.Block, []Finding) {
	if len(r.Moved) == 0 {
		return nil, nil
	}
	moves, taken := map[addr.Block]addr.Block{}, map[addr.Block]addr.Block{}
	var out []Finding
	for _, from := range slices.SortedFunc(maps.Keys(recorded.Blocks), addr.Compare) {
		to, ok := r.Move(from)
		if !ok {
			continue
		}
		_, there := recorded.Blocks[to]
		if _, leaves := r.Move(to); there && !leaves {
			taken[to] = to
		}
		if by, ok := taken[to]; ok {
			out = append(out, Finding{Severity: "warning", Address: to,
				Summary: fmt.Sprintf("%s does not move here: the run has %s at this address", from, by),
				Detail: fmt.Sprintf("%s keeps what it has. What %s has left, such as checkpoints, stays where it is. "+
					"Remove the moved block when nothing else needs it.", by, from)})
			continue
		}
		moves[from], taken[to] = to, from
	}
	return moves, out
}

// checkMove notes where a block was, and refuses to move one that runs: its process has the
// old address.
func (op *Operation) checkMove(in Input) []Finding {
	for from, to := range in.Moves {
		if to != op.Address {
			continue
		}
		op.MovedFrom = from
		op.Reasons = append([]Reason{{Text: fmt.Sprintf("it was %s", from)}}, op.Reasons...)
		if in.Live || op.Alive {
			return []Finding{{Severity: "error", Address: op.Address,
				Summary: fmt.Sprintf("%s cannot move here while its run is live", from),
				Detail:  "A running block is known by its address. Stop the run with recipe stop, and apply again."}}
		}
	}
	return nil
}
