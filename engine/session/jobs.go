package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/remote"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/executor"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// renderer is what a Host can do that runs blocks in jobs.
type renderer interface {
	Render(s remote.Spec, run string) (executor.Request, error)
	RenderTogether(specs []remote.Spec, run string) (request executor.Request, together bool, err error)
	Test(ctx context.Context, s remote.Spec) (string, error)
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
			f := plan.Finding{Severity: "error", Address: op.Address, Summary: fmt.Sprintf("its job cannot be made: %v", err)}
			var refused *sdk.Error
			var untrusted *schema.NotTrusted
			switch {
			case errors.As(err, &untrusted):
				f.Severity, f.Summary, f.Detail = "warning", untrusted.Error(), untrusted.Remedy()
			case errors.As(err, &refused):
				f.Detail = refused.Remedy
			}
			p.Findings = append(p.Findings, f)
		} else if job != nil && job.Staged != nil {
			p.Findings = append(p.Findings, unsent(op, s.Recipe.Dir)...)
		}
		op.Job = job
	}
	s.addGangs(p, host, cmp.Or(rec.ID, unnamedRun))
}

// askClusters adds to each job what its cluster says of it. A cluster that refuses a job refuses the plan; one that
// cannot be asked from this machine leaves it as it is.
func (s *Session) askClusters(ctx context.Context, p *plan.Plan) {
	host, ok := s.host.(renderer)
	if !ok {
		return
	}
	silent := map[addr.Block]bool{} // executors whose clusters do not answer
	for _, op := range p.Operations {
		if op.Job == nil || op.Block == nil || silent[op.Job.Executor] {
			continue
		}
		spec, err := s.specOf(op)
		if err == nil && spec != nil {
			op.Job.Answer, err = host.Test(ctx, *spec)
		}
		f := plan.Finding{Severity: "error", Address: op.Address}
		var refused *sdk.Error
		var untrusted *schema.NotTrusted
		switch {
		case err == nil:
			continue
		case errors.As(err, &untrusted):
			silent[op.Job.Executor] = true
			f.Severity, f.Address, f.Summary, f.Detail = "warning", op.Job.Executor, untrusted.Error(), untrusted.Remedy()
		case errors.As(err, &refused):
			f.Summary, f.Detail = op.Job.Executor.String()+" refuses its job: "+refused.Error(), refused.Remedy
		case errors.Is(err, executor.ErrUnreachable):
			silent[op.Job.Executor] = true
			f.Severity, f.Address, f.Summary, f.Detail = "info", op.Job.Executor, "it was not asked about its jobs", err.Error()
		default:
			f.Severity, f.Summary = "warning", fmt.Sprintf("%s was asked about its job: %v", op.Job.Executor, err)
		}
		p.Findings = append(p.Findings, f)
	}
}

// jobOf is nil when the executor's configuration is known only later.
func (s *Session) jobOf(host renderer, op *plan.Operation, rec *state.Run) (*plan.Job, error) {
	asked, err := s.specOf(op)
	if err != nil || asked == nil {
		return nil, err
	}
	if old := rec.Blocks[op.Address]; old != nil {
		asked.Attempt = old.Attempt + 1
	}
	request, err := host.Render(*asked, cmp.Or(rec.ID, unnamedRun))
	if err != nil {
		return nil, err
	}
	at, err := addr.Parse(asked.Executor.Block)
	job := &plan.Job{Executor: at, Language: request.Language, Request: request.Text}
	if err == nil && asked.Executor.Staged() {
		if job.Staged, err = staged(*asked); err == nil {
			err = inside(op.Block.Value, asked.RecipeDir)
		}
	}
	return job, err
}

// inside refuses relative paths in a block's body that lead out of the recipe's folder: those files are not staged. An
// absolute path may be that of something which the machine has.
func inside(body cty.Value, recipeDir string) error {
	body, _ = body.UnmarkDeep()
	return cty.Walk(body, func(p cty.Path, v cty.Value) (bool, error) {
		if !v.IsKnown() || v.IsNull() || v.Type() != cty.String {
			return true, nil
		}
		path, _, _ := strings.Cut(v.AsString(), ".py:") // FILE.py:FUNCTION
		if !strings.HasPrefix(path, "../") || filepath.IsLocal(path) {
			return true, nil
		}
		for _, name := range []string{path, path + ".py"} {
			if _, err := os.Stat(filepath.Join(recipeDir, name)); err == nil {
				return false, &sdk.Error{
					Summary: fmt.Sprintf("%s = %q is outside the recipe's folder, which is what reaches its machine",
						spec.PathString(p), v.AsString()),
					Remedy: "move it below " + recipeDir,
				}
			}
		}
		return true, nil
	})
}

// unsent tells of absolute paths in a block's body that exist here, outside of the recipe's folder: its machine may
// have the same, a model for example, but nothing brings it there.
func unsent(op *plan.Operation, recipeDir string) (found []plan.Finding) {
	top, err := filepath.Abs(recipeDir)
	if err != nil {
		return nil // the job would not have been made
	}
	body, _ := op.Block.Value.UnmarkDeep()
	_ = cty.Walk(body, func(p cty.Path, v cty.Value) (bool, error) {
		if !v.IsKnown() || v.IsNull() || v.Type() != cty.String || !filepath.IsAbs(v.AsString()) {
			return true, nil
		}
		path, _, _ := strings.Cut(v.AsString(), ".py:") // FILE.py:FUNCTION
		inside, err := filepath.Rel(top, path)
		if _, missing := os.Stat(path); missing != nil || err == nil && filepath.IsLocal(inside) {
			return true, nil
		}
		found = append(found, plan.Finding{Severity: "info", Address: op.Address,
			Summary: fmt.Sprintf("%s = %q is not sent to its machine, which must have it at this path", spec.PathString(p),
				v.AsString()),
			Detail: "move it below " + recipeDir + " to have it sent"})
		return true, nil
	})
	return found
}

// staged counts what of the recipe's folder would reach the machine of a job.
func staged(s remote.Spec) (*plan.Staged, error) {
	if s.Nodes > 1 {
		return nil, &sdk.Error{Summary: "files are staged to one machine, and the block asks for " + strconv.Itoa(s.Nodes),
			Remedy: "use an executor with files = \"shared\""}
	}
	n, err := s.Needs()
	return &plan.Staged{Files: n.Files, Bytes: n.Bytes}, err
}

// specOf is what a block's first attempt asks of its executor; nil when that is known only later.
func (s *Session) specOf(op *plan.Operation) (*remote.Spec, error) {
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
	top, err := filepath.Abs(string(s.Dir))
	if err != nil {
		return nil, err
	}
	recipe, err := filepath.Abs(s.Recipe.Dir)
	if err != nil {
		return nil, err
	}
	return &remote.Spec{Executor: x, Block: op.Address.String(), Attempt: 1, Dir: dir, RunDir: top, RecipeDir: recipe,
		Resources: run.Resources(op.Block.Meta, op.Address.Kind)}, nil
}
