package run

import (
	"context"
	"errors"
	"fmt"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/run/lifecycle"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
)

// ErrOver is the answer to an order that comes when the run has ended.
var ErrOver = errors.New("the run is over")

// ask runs fn in the supervisor's goroutine and returns its error.
func (e *Engine) ask(ctx context.Context, fn func(*supervisor) error) error {
	answer := make(chan error, 1)
	select {
	case e.orders <- func(s *supervisor) { answer <- fn(s) }:
	case <-e.done:
		return ErrOver
	case <-ctx.Done():
		return fmt.Errorf("wait for the engine: %w", ctx.Err())
	}
	select {
	case err := <-answer:
		return err
	case <-e.done:
		select {
		case err := <-answer: // what was ordered has ended the run
			return err
		default:
			return ErrOver
		}
	}
}

// Stop drains the run: jobs write a checkpoint and end, then services stop in reverse order. A later apply resumes.
func (e *Engine) Stop(ctx context.Context, why string) error {
	return e.ask(ctx, func(s *supervisor) error {
		s.end(state.Stopped, nil, why)
		return nil
	})
}

// Kill ends every process at once.
func (e *Engine) Kill(ctx context.Context) error {
	return e.ask(ctx, func(s *supervisor) error {
		s.kill()
		return nil
	})
}

// Restart stops one block and starts it again; those that need it are notified, and wait or retry.
func (e *Engine) Restart(ctx context.Context, a addr.Block) error {
	return e.ask(ctx, func(s *supervisor) error {
		b := s.blocks[a]
		switch {
		case b == nil:
			return fmt.Errorf("there is no block %s in this run", a)
		case s.ending != nil:
			return ErrOver
		case b.Goal == lifecycle.Removed:
			return fmt.Errorf(
				"%s is no longer declared and is stopping: declare it again and apply", a)
		case b.Stage == lifecycle.Checked:
			return fmt.Errorf("%s is external: the engine does not run or restart it", a)
		}
		b.reason, b.err, b.history = "restarted on request", nil, nil
		s.move(b, lifecycle.Restarted{})
		return nil
	})
}

// Converge adopts a second plan while the run continues. Blocks without a change keep running.
func (e *Engine) Converge(ctx context.Context, recipe *schema.Recipe, p *plan.Plan) error {
	return e.ask(ctx, func(s *supervisor) error {
		if s.ending != nil {
			return ErrOver
		}
		s.recipe, s.outputs.moved = recipe, true
		s.applyPlan(p)
		s.evaluations.converge(recipe)
		e.noteRun(func(r *state.Run) {
			r.Digest = p.Digest
			r.Apply(p.Saved, e.now())
		})
		return nil
	})
}

// Live returns the record and which blocks run now, for a plan against the live run.
func (e *Engine) Live(ctx context.Context) (*state.Run, map[addr.Block]plan.Observed, error) {
	seen := map[addr.Block]plan.Observed{}
	err := e.ask(ctx, func(s *supervisor) error {
		for a, b := range s.blocks {
			seen[a] = plan.Observed{Alive: b.Stage != lifecycle.Idle, Phase: string(b.Phase)}
		}
		return nil
	})
	for a, now := range seen {
		if now.Alive {
			now.Moved = movedFrom(ctx, e.opts.Host, e.opts.Dir.Block(a))
			seen[a] = now
		}
	}
	return e.store.Run(), seen, err
}
