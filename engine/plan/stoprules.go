package plan

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// StopName is the name of the rules of stop_when in the recorded form of a trainer. No body can use it.
const StopName = "stop_when"

// endedAt is the beginning of messages about a trainer that a rule has ended.
const endedAt = "it was ended at step "

// stopRules adds the rules that end a trainer early to its recorded form, as a list of texts.
func stopRules(config map[string]json.RawMessage, b *schema.Block) error {
	if len(b.Meta.StopWhen) == 0 {
		return nil
	}
	texts := make([]string, 0, len(b.Meta.StopWhen))
	for _, r := range b.Meta.StopWhen {
		texts = append(texts, stopRule(r))
	}
	var err error
	config[StopName], err = json.Marshal(texts)
	return err
}

func stopRule(r decode.StopRule) string {
	switch {
	case r.Tokens > 0:
		return fmt.Sprintf("tokens = %d", r.Tokens)
	case r.Wall > 0:
		return fmt.Sprintf("wall = %s", r.Wall)
	case r.For > 1:
		return fmt.Sprintf("%s %s %g for %d steps", r.Metric, r.Op, r.Value, r.For)
	}
	return fmt.Sprintf("%s %s %g", r.Metric, r.Op, r.Value)
}

// compareStopRules finds changed rules. A live trainer takes them over; one that they have ended goes on. They change
// nothing of a trainer that has done its steps, and a record of an earlier version has none.
func (op *Operation) compareStopRules(rec *state.Block, before, after json.RawMessage) {
	over := rec.Phase == "completed" && !op.Alive
	if over && rec.EndedBy == "" {
		return
	}
	r := reason(StopName, "live", before, after)
	if over {
		r.Text += fmt.Sprintf("; "+endedAt+"%d: %s", stepsDone(rec, false), rec.EndedBy)
	}
	op.because(r)
	op.harden(actionFor("live", op.Kind, op.Alive, rec))
}

// concluded names which trainers a rule has ended before their last step, and how they go on.
func concluded(ops []*Operation, recorded *state.Run) []Finding {
	var found []Finding
	for _, op := range ops {
		rec := recorded.Blocks[op.Address]
		if rec == nil || op.Kind != kind.Trainer || rec.EndedBy == "" || rec.Phase != "completed" || op.Action != Nothing {
			continue
		}
		of := ""
		var steps json.Number
		if json.Unmarshal(op.Config["steps"], &steps) == nil {
			of = " of " + steps.String()
		}
		found = append(found, Finding{Severity: "info", Address: op.Address,
			Summary: fmt.Sprintf(endedAt+"%d%s: %s", stepsDone(rec, false), of, rec.EndedBy),
			Detail:  "To train on, change or remove that stop_when, then recipe apply: it continues from its checkpoint."})
	}
	return found
}

// Over explains why trainers of a finished run do nothing more.
func (p *Plan) Over() string {
	var out []string
	for _, f := range p.Findings {
		if strings.HasPrefix(f.Summary, endedAt) {
			out = append(out, fmt.Sprintf("%s: %s. %s", f.Address, f.Summary, f.Detail))
		}
	}
	return strings.Join(out, "\n")
}
