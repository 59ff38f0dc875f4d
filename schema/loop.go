package schema

import (
	"fmt"

	"github.com/recipe-rl/recipe/sdk/kind"
)

// checkLoop warns of environments whose groups no trainer consumes: such a run is valid, fills its queue and never
// ends.
func (p *evaluator) checkLoop(r *Recipe) {
	var environments []*Block
	for _, b := range r.Blocks {
		switch {
		case b.Addr.Kind == kind.Trainer, b.Addr.Kind == kind.Trajectories && b.Meta.External != nil:
			return // an external trajectory API has a trainer elsewhere
		case b.Addr.Kind == kind.Environment:
			environments = append(environments, b)
		}
	}
	if len(environments) == 0 || p.diags.HasErrors() || p.loader.diags.HasErrors() {
		return // the part that could not be read may declare a trainer
	}
	what := environments[0].Addr.String()
	if n := len(environments); n > 1 {
		what = fmt.Sprintf("%s and %d more environments", what, n-1)
	}
	d := warning(environments[0].Range, "No trainer",
		fmt.Sprintf(
			"No trainer consumes the groups of %s: the queue fills up, and the run continues until recipe stop. Add a "+
				"trainer with environments = […], unless a trainer outside this recipe takes the groups from the "+
				"trajectory API.", what))
	d.Extra = InstanceExtra{Address: environments[0].Addr}
	p.diags = append(p.diags, d)
}
