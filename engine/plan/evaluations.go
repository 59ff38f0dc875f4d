package plan

import (
	"fmt"
	"slices"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Evaluation is one evaluation block that an apply would follow.
type Evaluation struct {
	Name        string     `json:"name"`
	Environment addr.Block `json:"environment"`
	When        string     `json:"when"` // in words
	// Count is how many evaluations this apply makes until the trainer has done its steps; 0: none, or not known.
	Count int `json:"count,omitempty"`
	// Past is how many evaluations earlier applies made. They are not made again.
	Past    int `json:"past,omitempty"`
	Tasks   int `json:"tasks,omitempty"` // of each, at most; 0: the whole held-out set
	Samples int `json:"samples"`         // completions of each task
	// Rollouts are the completions of all evaluations together; 0: not known.
	Rollouts int    `json:"rollouts,omitempty"`
	Cost     string `json:"cost"`           // what it costs the training, in words
	Gate     string `json:"gate,omitempty"` // what it has to reach, in words
}

func evaluations(in Input, ops map[addr.Block]*Operation) []Evaluation {
	r := in.Recipe
	var out []Evaluation
	for _, e := range r.Evaluations {
		one := Evaluation{Name: e.Name, Environment: e.Environment, When: occasions(e), Tasks: e.Tasks, Samples: e.Samples,
			Cost: fmt.Sprintf("weight updates, and so the trainer, wait while it lasts, %s at most", e.Timeout)}
		if b := r.Lookup(e.Environment); b != nil {
			if _, held := schema.HeldOut(b); held > 0 && (e.Tasks == 0 || e.Tasks > held) {
				one.Tasks = held
			}
		}
		if one.Count, one.Past = countOf(in, ops, e); one.Count > 0 {
			one.Rollouts = one.Count * one.Tasks * e.Samples
		}
		if g := e.Gate; g != nil {
			one.Gate = fmt.Sprintf("%s at least %g, from step %d on; otherwise %s", g.Metric, g.AtLeast, g.From, g.Otherwise)
		}
		out = append(out, one)
	}
	return out
}

// occasions is when an evaluation is made, in words.
func occasions(e decode.Evaluation) string {
	var parts []string
	if e.AtStart {
		parts = append(parts, "before step 1")
	}
	if e.Every == 1 {
		parts = append(parts, "after every step")
	}
	if e.Every > 1 {
		parts = append(parts, fmt.Sprintf("every %d steps", e.Every))
	}
	if e.AtEnd {
		parts = append(parts, "at the end")
	}
	text := ""
	for i, p := range parts {
		switch {
		case i == 0:
		case i == len(parts)-1:
			text += " and "
		default:
			text += ", "
		}
		text += p
	}
	return text
}

// countOf is how many evaluations a run has from the step on at which its trainer continues, and how many it had until
// there; 0: the steps of the trainer are not known.
func countOf(in Input, ops map[addr.Block]*Operation, e decode.Evaluation) (left, past int) {
	r := in.Recipe
	i := slices.IndexFunc(r.Blocks, func(b *schema.Block) bool { return b.Addr == e.Environment })
	if i < 0 {
		return 0, 0
	}
	sampler, _ := schema.Sampler(r.Blocks[i])
	trainer, _ := schema.Trains(sampler, r.Blocks)
	var c struct {
		Steps int64 `recipe:"steps"`
	}
	if trainer == nil || (spec.Ref{Values: trainer.Value}).Decode(&c) != nil || c.Steps == 0 {
		return 0, 0
	}
	done := min(continues(in, ops[trainer.Addr]), c.Steps)
	if e.AtStart {
		if done > 0 {
			past++
		} else {
			left++
		}
	}
	if e.Every > 0 {
		past += int(done / e.Every)
		left += int(c.Steps/e.Every - done/e.Every)
	}
	if e.AtEnd && (e.Every == 0 || c.Steps%e.Every != 0) {
		if done == c.Steps {
			past++
		} else {
			left++
		}
	}
	return left, past
}

// continues is the step from which a trainer resumes.
func continues(in Input, op *Operation) int64 {
	if op == nil || op.Action != Resume && op.Action != Nothing && op.Action != Update {
		return 0
	}
	rec, kept := in.Recorded.Blocks[op.Address], in.OnDisk[op.Address]
	switch {
	case kept.Left != nil:
		return kept.Left.Step
	case rec == nil || rec.Checkpoint == nil || kept.Gone:
		return 0
	}
	return rec.Checkpoint.Step
}
