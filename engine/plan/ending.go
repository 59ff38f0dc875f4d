package plan

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// endings warns of trainers whose steps were lowered to the number already done: applying that ends them, and with the
// last of them the run. The reason says so too.
func endings(ops []*Operation, recorded *state.Run) []Finding {
	var found []Finding
	for _, op := range ops {
		rec := recorded.Blocks[op.Address]
		if op.Kind != kind.Trainer || rec == nil || op.Action == Stop || op.Action == Replace || op.Action == Create {
			continue
		}
		done := rec.Step
		if rec.Checkpoint != nil {
			done = max(done, rec.Checkpoint.Step)
		}
		for i, r := range op.Reasons {
			var steps json.Number
			if r.Attribute != "steps" || json.Unmarshal(r.After, &steps) != nil {
				continue
			}
			n, err := strconv.ParseInt(steps.String(), 10, 64)
			if err != nil || n > done {
				continue
			}
			op.Reasons[i].Text += fmt.Sprintf("; %d steps are done, so this ends the training", done)
			found = append(found, Finding{
				Severity: "warning", Address: op.Address,
				Summary: fmt.Sprintf("steps = %d ends the training: %d steps are done", n, done),
				Detail: "The trainer writes a last checkpoint and ends when this is applied; the run ends with " +
					"its last trainer. To continue training, set steps to a larger number.",
			})
		}
	}
	return found
}
