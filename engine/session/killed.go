package session

import (
	"fmt"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema/addr"
)

// killed notes that the run goes on without an engine: its blocks can be as the recipe declares them, and an apply
// without changes still does something.
func killed(rec *state.Run, seen map[addr.Block]plan.Observed) []plan.Finding {
	alive := 0
	for _, now := range seen {
		if now.Alive {
			alive++
		}
	}
	if rec.Status != state.Running || alive == 0 {
		return nil
	}
	return []plan.Finding{{Severity: "info",
		Summary: fmt.Sprintf("its engine was killed: an apply starts one, which adopts the %d live blocks", alive),
		Detail:  "Without an engine no block is restarted, and nothing is written to the log of the run."}}
}
