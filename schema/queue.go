package schema

import (
	"fmt"

	"github.com/hashicorp/hcl/v2"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// checkQueues refuses trainers that take groups from one trajectories block at the same time: each group goes to one of
// them, whichever environment it is from, so both learn from what the policy of the other sampled. One after another is
// fine. It also refuses environments that post to another trajectories block than the trainer that lists them takes
// from.
func checkQueues(all []*Block) (diags hcl.Diagnostics) {
	blocks := make(map[addr.Block]*Block, len(all))
	takers := map[addr.Block][]*Block{} // of each trajectories block
	for _, b := range all {
		blocks[b.Addr] = b
		if queue := queueOf(b); b.Addr.Kind == kind.Trainer && queue != (addr.Block{}) {
			takers[queue] = append(takers[queue], b)
		}
	}
	for queue, trainers := range takers {
		for _, t := range trainers {
			diags = append(diags, checkListed(blocks, t, queue)...)
		}
	}
	for queue, trainers := range takers {
		if one, other := atOnce(blocks, trainers); one != nil {
			diags = append(diags, errorOf(other, other.Range, "Two trainers on one queue", fmt.Sprintf(
				"%s and %s take groups from %s at the same time: each group goes to one of them, whichever environment "+
					"it is from. Declare a trajectories block for each trainer, and write trajectories = … in the trainer, "+
					"its environments and its sync block; or let one wait for the other: depends_on = [{ block = %s, "+
					"condition = \"completed\" }].", one.Addr, other.Addr, queue, one.Addr)))
		}
	}
	return diags
}

// checkListed refuses environments of a trainer whose groups it would wait for in vain.
func checkListed(blocks map[addr.Block]*Block, trainer *Block, queue addr.Block) (diags hcl.Diagnostics) {
	for _, need := range trainer.Needs {
		e := blocks[need.On]
		if need.On.Kind != kind.Environment || need.Attribute != "environments" || e == nil {
			continue
		}
		if isSet(e.Value, "evaluation_only") {
			diags = append(diags, errorOf(trainer, need.Range, "Environment without rollouts", fmt.Sprintf(
				"%s has evaluation_only = true: it samples nothing for %s. Leave it out of environments.", e.Addr,
				trainer.Addr)))
		}
		if posts := queueOf(e); posts != queue && posts != (addr.Block{}) {
			diags = append(diags, errorOf(trainer, need.Range, "Environment on another queue", fmt.Sprintf(
				"%s posts its groups to %s, and %s takes them from %s: they would never meet. Write the same "+
					"trajectories = … in both.", e.Addr, posts, trainer.Addr, queue)))
		}
	}
	return diags
}

// errorOf is an error about a block.
func errorOf(b *Block, at hcl.Range, summary, detail string) *hcl.Diagnostic {
	d := diagnostic.Problem(at, summary, detail)
	d.Extra = InstanceExtra{Address: b.Addr}
	return d
}

// atOnce are two of the trainers of which neither waits for the end of the other; nil: there are none.
func atOnce(blocks map[addr.Block]*Block, trainers []*Block) (one, other *Block) {
	if len(trainers) < 2 {
		return nil, nil
	}
	ended := make([]map[addr.Block]bool, len(trainers))
	for i, t := range trainers {
		ended[i] = map[addr.Block]bool{}
		endedBefore(blocks, t, map[addr.Block]bool{}, ended[i])
	}
	for i, t := range trainers {
		for j, u := range trainers[:i] {
			if !ended[i][u.Addr] && !ended[j][t.Addr] {
				return u, t
			}
		}
	}
	return nil, nil
}

// endedBefore collects the blocks that are completed when b starts.
func endedBefore(blocks map[addr.Block]*Block, b *Block, seen, ended map[addr.Block]bool) {
	if b == nil || seen[b.Addr] {
		return
	}
	seen[b.Addr] = true
	for _, need := range b.Needs {
		if need.Condition == Completed {
			ended[need.On] = true
		}
		endedBefore(blocks, blocks[need.On], seen, ended)
	}
}
