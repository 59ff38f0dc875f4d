package plan

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// lost compares the recorded checkpoint of a job that is to be started with the disk: without any it would start at
// step 0, which only a person may order.
func (op *Operation) lost(in Input, rec *state.Block) []Finding {
	kept := in.OnDisk[op.Address]
	starts := op.Action == Resume || op.Action == Restart
	if !kept.Gone || !starts || op.Alive || op.Kind.Life() != kind.Job || rec.Checkpoint == nil {
		return nil
	}
	gone := fmt.Sprintf("its checkpoint of step %d, %s, is gone", rec.Checkpoint.Step, rec.Checkpoint.Path)
	switch {
	case kept.Left != nil:
		return []Finding{{Severity: "warning", Address: op.Address, Summary: gone,
			Detail: fmt.Sprintf("It continues from step %d, %s, the newest that is left. Put the newer one back to keep its "+
				"steps.", kept.Left.Step, kept.Left.Path)}}
	case Stored(op.Config) && !in.FromScratch:
		return []Finding{{Severity: "warning", Address: op.Address, Summary: gone,
			Detail: "It continues from the newest checkpoint in its store, and fails when there is none."}}
	case in.FromScratch:
		op.Action = Replace
		op.because(Reason{Text: gone + ": starts at step 0 (--from-scratch)"})
		return nil
	}
	return []Finding{{Severity: "error", Address: op.Address, Summary: gone + ", and it would start at step 0",
		Detail: fmt.Sprintf("%s has no other. Put it back, or start over with --from-scratch.",
			filepath.Dir(rec.Checkpoint.Path))}}
}

// Stored says whether a recorded configuration names a store for copies of checkpoints, as the trainers of the SDK do.
func Stored(config map[string]json.RawMessage) bool {
	named := func(text json.RawMessage) bool {
		return len(text) > 0 && string(text) != "null" && string(text) != `""`
	}
	var inner map[string]json.RawMessage
	_ = json.Unmarshal(config["checkpoints"], &inner)
	return named(config["store"]) || named(inner["store"])
}
