package session

import (
	"cmp"
	"fmt"
	"path/filepath"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/remote"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/executor"
)

// renderer is what a Host can do that runs blocks in jobs.
type renderer interface {
	Render(s remote.Spec, run string) (executor.Request, error)
}

var _ renderer = run.Processes{}

// unnamedRun stands for the id of a run that there is none of yet.
const unnamedRun = "RUN"

// addJobs adds to each operation that starts a block in a job what would be submitted. An executor that refuses it
// refuses the plan.
func (s *Session) addJobs(p *plan.Plan, rec *state.Run) {
	host, ok := s.host.(renderer)
	if !ok {
		return
	}
	for _, op := range p.Operations {
		switch op.Action {
		case plan.Create, plan.Restart, plan.Resume, plan.Replace:
		default:
			continue
		}
		if op.Block == nil || !run.IsPlaced(op.Block.Meta) {
			continue
		}
		job, err := s.jobOf(host, op, rec)
		if err != nil {
			p.Findings = append(p.Findings, plan.Finding{Severity: "error", Address: op.Address,
				Summary: fmt.Sprintf("its job cannot be made: %v", err)})
		}
		op.Job = job
	}
}

// jobOf is nil when the executor's configuration is known only later.
func (s *Session) jobOf(host renderer, op *plan.Operation, rec *state.Run) (*plan.Job, error) {
	at, err := addr.Parse(op.Block.Meta.Placement.Executor)
	if err != nil {
		return nil, err
	}
	block := s.Recipe.Lookup(at)
	if block == nil || !block.Value.IsWhollyKnown() {
		return nil, nil
	}
	dir, err := filepath.Abs(s.Dir.Block(op.Address))
	if err != nil {
		return nil, err
	}
	x, err := run.ExecutorOf(block, block.Value, "") // rendering keeps no files
	if err != nil {
		return nil, err
	}
	spec := remote.Spec{Executor: x, Block: op.Address.String(), Attempt: 1, Dir: dir,
		Resources: run.Resources(op.Block.Meta)}
	if old := rec.Blocks[op.Address]; old != nil {
		spec.Attempt = old.Attempt + 1
	}
	request, err := host.Render(spec, cmp.Or(rec.ID, unnamedRun))
	if err != nil {
		return nil, err
	}
	return &plan.Job{Executor: at, Language: request.Language, Request: request.Text}, nil
}
