package run

import (
	"maps"
	"path/filepath"
	"slices"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/lineage"
	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
)

// Move gives recorded blocks the addresses that moved blocks of the recipe name, with their folders, checkpoints and
// progress. None of them may run. An interrupted move is finished by the next: the record is written last.
func (e *Engine) Move(r *schema.Recipe) error {
	moves, _ := plan.Moves(r, e.store.Run())
	if len(moves) == 0 {
		return nil
	}
	for _, from := range slices.SortedFunc(maps.Keys(moves), addr.Compare) {
		to := moves[from]
		if err := e.opts.Dir.Move(from, to, e.now()); err != nil {
			return err
		}
		if err := lineage.Move(filepath.Join(string(e.opts.Dir), "checkpoints"), from, to); err != nil {
			return err
		}
		e.append(event.Event{Type: event.Moved, Address: to.String(), From: from.String()})
	}
	return e.store.Rewrite(func(rec *state.Run) { *rec = *rec.Moved(moves, e.opts.Dir) })
}
