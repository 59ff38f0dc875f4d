package plan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// endings warns of trainers that have nothing left to train, because their steps were lowered to the number already
// done or because that is where they continue, as a fork of a completed run does: applying that ends them, and with the
// last of them the run. The reason says so too.
func endings(ops []*Operation, recorded *state.Run) []Finding {
	var found []Finding
	for _, op := range ops {
		rec := recorded.Blocks[op.Address]
		if op.Kind != kind.Trainer || rec == nil || op.Action == Stop || op.Action == Replace || op.Action == Create {
			continue
		}
		changed := slices.IndexFunc(op.Reasons, func(r Reason) bool { return r.Attribute == "steps" })
		if changed < 0 && op.Action != Resume {
			continue
		}
		var steps json.Number
		if json.Unmarshal(op.Config["steps"], &steps) != nil {
			continue
		}
		done := stepsDone(rec, op.Alive)
		n, err := strconv.ParseInt(steps.String(), 10, 64)
		if err != nil || n > done {
			continue
		}
		if changed >= 0 {
			op.Reasons[changed].Text += fmt.Sprintf("; %d steps are done, so this ends the training", done)
		}
		found = append(found, Finding{
			Severity: "warning", Address: op.Address,
			Summary: fmt.Sprintf("steps = %d ends the training: %d steps are done", n, done),
			Detail: "The trainer writes a last checkpoint and ends when this is applied; the run ends with " +
				"its last trainer. To continue training, set steps to a larger number.",
		})
	}
	return found
}

// stepsDone is the step that a trainer has reached, and for one that does not run the step that it continues from.
func stepsDone(rec *state.Block, alive bool) int64 {
	switch {
	case rec.Checkpoint == nil:
		return rec.Step
	case alive:
		return max(rec.Step, rec.Checkpoint.Step)
	}
	return rec.Checkpoint.Step
}
