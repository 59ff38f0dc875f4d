package schema

import (
	"fmt"

	"github.com/recipe-rl/recipe/sdk/kind"
)

// checkLoop warns of environments whose groups nothing trains on: such a run is valid, fills its queue and stays up for
// ever.
func (p *evaluator) checkLoop(r *Recipe) {
	var environments []*Block
	for _, b := range r.Blocks {
		switch {
		case b.Addr.Kind == kind.Trainer, b.Addr.Kind == kind.Trajectories && b.Meta.External != nil:
			return // someone else's trajectory API has someone else's trainer
		case b.Addr.Kind == kind.Environment:
			environments = append(environments, b)
		}
	}
	if len(environments) == 0 || p.diags.HasErrors() || p.loader.diags.HasErrors() {
		return // a trainer may be among what could not be read
	}
	what := environments[0].Addr.String()
	if n := len(environments); n > 1 {
		what = fmt.Sprintf("%s and %d more environments", what, n-1)
	}
	d := warning(environments[0].Range, "No trainer",
		fmt.Sprintf(
			"No trainer takes the groups of %s: once the queue is full they wait, and the run stays up until recipe "+
				"stop. Add a trainer { environments = […] }, unless one that is not of this recipe takes them from "+
				"the trajectory API.", what))
	d.Extra = InstanceExtra{Address: environments[0].Addr}
	p.diags = append(p.diags, d)
}
