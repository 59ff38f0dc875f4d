package schema

import (
	"fmt"

	"github.com/hashicorp/hcl/v2"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// checkBlocks reports blocks that fit each other by their types and would not train what their author wants.
func checkBlocks(blocks []*Block) hcl.Diagnostics {
	diags, queues := checkLoop(blocks), checkQueues(blocks)
	if diags = append(diags, queues...); queues.HasErrors() {
		return diags
	}
	return append(diags, checkSync(blocks)...)
}

// checkLoop warns of environments that no trainer lists. Where a trainer takes groups from the same trajectories block,
// it trains on theirs, too; where none does, such a run is valid, fills its queue and never ends.
func checkLoop(blocks []*Block) (diags hcl.Diagnostics) {
	listed := map[addr.Block]bool{}
	consumer := map[addr.Block]addr.Block{} // of a trajectories block
	elsewhere := map[addr.Block]bool{}      // an external trajectory API has a trainer elsewhere
	for _, b := range blocks {
		switch b.Addr.Kind {
		case kind.Trajectories:
			elsewhere[b.Addr] = b.Meta.External != nil
		case kind.Trainer:
			for _, need := range b.Needs {
				listed[need.On] = true
				consumer[need.On] = b.Addr
			}
		}
	}
	var unheard, fed []*Block
	for _, b := range blocks {
		if b.Addr.Kind != kind.Environment || listed[b.Addr] || isSet(b.Value, "evaluation_only") {
			continue
		}
		queue := queueOf(b)
		switch _, taken := consumer[queue]; {
		case elsewhere[queue]:
		case taken:
			fed = append(fed, b)
		default:
			unheard = append(unheard, b)
		}
	}
	if len(unheard) > 0 {
		diags = append(diags, warningOf(unheard[0], "No trainer", fmt.Sprintf(
			"No trainer consumes the groups of %s: the queue fills up, and the run continues until recipe stop. Add a "+
				"trainer with environments = […], unless a trainer outside this recipe takes the groups from the "+
				"trajectory API.", andMore(unheard))))
	}
	if len(fed) > 0 {
		queue := queueOf(fed[0])
		diags = append(diags, warningOf(fed[0], "Not among the trainer's environments", fmt.Sprintf(
			"%s trains on the groups of %s, too, though its environments do not say so: it takes whatever is posted to "+
				"%s. Add it to environments, or give it a trajectories block of its own.",
			consumer[queue], andMore(fed), queue)))
	}
	return diags
}

// queueOf is the trajectories block that an environment posts to, or that a trainer takes from.
func queueOf(b *Block) addr.Block {
	for _, need := range b.Needs {
		if need.On.Kind == kind.Trajectories && need.Attribute == "trajectories" {
			return need.On
		}
	}
	return addr.Block{}
}

// andMore names the first of some environments and says how many more there are.
func andMore(environments []*Block) string {
	if n := len(environments) - 1; n > 0 {
		return fmt.Sprintf("%s and %d more environments", environments[0].Addr, n)
	}
	return environments[0].Addr.String()
}

// warningOf is a warning about a block.
func warningOf(b *Block, summary, detail string) *hcl.Diagnostic {
	d := diagnostic.Warning(b.Range, summary, detail)
	d.Extra = InstanceExtra{Address: b.Addr}
	return d
}

// checkSync warns of trainers whose weights no sync block takes to where their environments sample: these go on with
// the weights that inference started with, from which training gets further and further away. Servers and trainers that
// recipe does not run may be told of weights by others.
func checkSync(all []*Block) hcl.Diagnostics {
	blocks := make(map[addr.Block]*Block, len(all))
	synced := map[[2]addr.Block]bool{} // trainer and inference block
	for _, b := range all {
		blocks[b.Addr] = b
		if b.Addr.Kind != kind.Sync {
			continue
		}
		for _, from := range b.Needs {
			if from.On.Kind != kind.Trainer {
				continue
			}
			for _, to := range b.Needs {
				synced[[2]addr.Block{from.On, to.On}] = true
			}
		}
	}
	var found []string
	var first *Block
	for _, trainer := range all {
		if trainer.Addr.Kind != kind.Trainer || trainer.Meta.External != nil {
			continue
		}
		environment, inference := sampledElsewhere(blocks, synced, trainer)
		if inference == nil {
			continue
		}
		if first == nil {
			first = trainer
		}
		found = append(found, fmt.Sprintf(
			"No sync block takes the weights of %s to %s: however far it trains, %s samples with the weights that "+
				"inference started with. Declare sync \"weights\" with trainer = %s and inference = [%s], unless that "+
				"is what you want.", trainer.Addr, inference.Addr, environment.Addr, trainer.Addr, inference.Addr))
	}
	if first == nil {
		return nil
	}
	if more := len(found) - 1; more > 0 {
		found[0] += fmt.Sprintf(" The same is true of %d more.", more)
	}
	return hcl.Diagnostics{warningOf(first, "Weights that reach no inference", found[0])}
}

// sampledElsewhere is the first environment of a trainer that samples from an inference block which recipe runs and no
// sync block connects with the trainer, and that block. What else an environment refers to, such as a judge, is not
// trained.
func sampledElsewhere(
	blocks map[addr.Block]*Block, synced map[[2]addr.Block]bool, trainer *Block,
) (environment, inference *Block) {
	for _, of := range trainer.Needs {
		environment = blocks[of.On]
		if of.On.Kind != kind.Environment || environment == nil {
			continue
		}
		for _, need := range environment.Needs {
			inference = blocks[need.On]
			if need.Attribute == "inference" && inference != nil && inference.Addr.Kind == kind.Inference &&
				inference.Meta.External == nil && !synced[[2]addr.Block{trainer.Addr, need.On}] {
				return environment, inference
			}
		}
	}
	return nil, nil
}
