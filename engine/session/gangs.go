package session

import (
	"fmt"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/remote"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/schema/addr"
)

// addGangs shows the jobs of each gang as the one request that is made for them. A gang whose blocks name several
// executors refuses the plan.
func (s *Session) addGangs(p *plan.Plan, host renderer, id string) {
	first := map[string]*plan.Operation{}     // of each gang
	members := map[string][]*plan.Operation{} // those that are started
	var names []string
	for _, op := range p.Operations {
		if op.Block == nil || !run.IsPlaced(op.Block.Meta) || op.Block.Meta.Resources.Gang == "" {
			continue
		}
		name := op.Block.Meta.Resources.Gang
		if first[name] == nil {
			first[name] = op
			names = append(names, name)
		}
		at, other := op.Block.Meta.Placement.Executor, first[name].Block.Meta.Placement.Executor
		if at != other {
			p.Findings = append(p.Findings, plan.Finding{Severity: "error", Address: op.Address,
				Summary: fmt.Sprintf("gang %q: %s runs by %s, and %s by %s; the jobs of a gang are submitted to one executor",
					name, op.Address, at, first[name].Address, other),
				Detail: "Name one executor in both placements, or leave gang out of one."})
			continue
		}
		if op.Job != nil {
			members[name] = append(members[name], op)
		}
	}
	for _, name := range names {
		if len(members[name]) > 1 {
			s.renderGang(p, host, name, members[name], id)
		}
	}
}

func (s *Session) renderGang(p *plan.Plan, host renderer, name string, ops []*plan.Operation, id string) {
	specs := make([]remote.Spec, 0, len(ops))
	for _, op := range ops {
		spec, err := s.specOf(op)
		if err != nil || spec == nil {
			return // its own job says why
		}
		specs = append(specs, *spec)
	}
	request, together, err := host.RenderTogether(specs, id)
	at := ops[0].Job.Executor
	switch {
	case err != nil:
		p.Findings = append(p.Findings, plan.Finding{Severity: "error", Address: ops[0].Address,
			Summary: fmt.Sprintf("the jobs of gang %q cannot be made: %v", name, err)})
	case !together:
		p.Findings = append(p.Findings, plan.Finding{Severity: "info", Address: at,
			Summary: fmt.Sprintf("the jobs of gang %q are submitted one by one", name),
			Detail: fmt.Sprintf("%s cannot start several jobs together: on a shared file system executors \"slurm\" can, and "+
				"\"kubernetes\" with gang_scheduler.", at)})
	default:
		var leader addr.Block = ops[0].Address
		for _, op := range ops[1:] {
			op.Job.Request, op.Job.With = "", &leader
		}
		ops[0].Job.Request, ops[0].Job.Language = request.Text, request.Language
	}
}
