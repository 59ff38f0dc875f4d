package plan

import (
	"fmt"
	"path/filepath"

	"github.com/recipe-rl/recipe/engine/state"
)

// gone is why a block that is no longer declared is stopped, and what of it stays.
func gone(rec *state.Block) string {
	if rec.Checkpoint == nil {
		return "it is no longer declared"
	}
	return fmt.Sprintf("it is no longer declared; its checkpoint of step %d stays in %s", rec.Checkpoint.Step,
		filepath.Dir(rec.Checkpoint.Path))
}

// renamed warns about each new job whose plugin is the same as the plugin of one with a checkpoint that is no longer
// declared: the run knows a block by its address, so a new name starts at step 0.
func renamed(ops []*Operation, in Input) (out []Finding) {
	for _, op := range ops {
		if op.Action != Create {
			continue
		}
		for _, old := range ops {
			rec := in.Recorded.Blocks[old.Address]
			if old.Action != Stop || old.Kind != op.Kind || old.Plugin != op.Plugin || rec == nil || rec.Checkpoint == nil {
				continue
			}
			out = append(out, Finding{Severity: "warning", Address: op.Address,
				Summary: fmt.Sprintf("it starts at step 0: %s, which is no longer declared, has a checkpoint of step %d",
					old.Address, rec.Checkpoint.Step),
				Detail: fmt.Sprintf("The run knows a block by its address. If this is the same block under another name, add "+
					"this to continue from step %d:\n\nmoved {\n  from = %s\n  to   = %s\n}\n\nAfter an apply without it the run "+
					"does not know that checkpoint any more. Its files stay in %s.", rec.Checkpoint.Step, old.Address, op.Address,
					filepath.Dir(rec.Checkpoint.Path))})
		}
	}
	return out
}
