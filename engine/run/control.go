package run

import (
	"context"
	"errors"
	"fmt"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
)

// ErrOver is the answer to an order that comes when the run has ended.
var ErrOver = errors.New("the run is over")

// ask runs fn in the conductor's goroutine and returns its error.
func (e *Engine) ask(ctx context.Context, fn func(*conductor) error) error {
	answer := make(chan error, 1)
	select {
	case e.orders <- func(c *conductor) { answer <- fn(c) }:
	case <-e.done:
		return ErrOver
	case <-ctx.Done():
		return fmt.Errorf("waiting for the engine: %w", ctx.Err())
	}
	select {
	case err := <-answer:
		return err
	case <-e.done:
		return ErrOver
	}
}

// Stop drains the run: jobs write a checkpoint and end, then services stop in reverse order. A later apply goes on.
func (e *Engine) Stop(ctx context.Context, why string) error {
	return e.ask(ctx, func(c *conductor) error {
		c.end(state.Stopped, nil, why)
		return nil
	})
}

// Kill ends every process at once.
func (e *Engine) Kill(ctx context.Context) error {
	return e.ask(ctx, func(c *conductor) error {
		c.kill()
		return nil
	})
}

// Restart stops one block and starts it again; those that need it are told, and wait or retry.
func (e *Engine) Restart(ctx context.Context, a addr.Block) error {
	return e.ask(ctx, func(c *conductor) error {
		u := c.units[a]
		switch {
		case u == nil:
			return fmt.Errorf("there is no block %s in this run", a)
		case c.ending != nil:
			return ErrOver
		case u.goal == gone:
			return fmt.Errorf("%s is no longer declared and is being stopped: declare it again and apply, then it comes back", a)
		case u.checks != nil:
			return fmt.Errorf("%s is external: someone else runs it, and the engine never restarts it", a)
		}
		u.again, u.resume, u.why, u.err = true, true, "a person asked for a restart", nil
		u.goal, u.history = up, nil
		c.dirty = true
		return nil
	})
}

// Converge takes over a second plan while the run goes on. Blocks that the plan leaves alone are not touched.
func (e *Engine) Converge(ctx context.Context, recipe *schema.Recipe, p *plan.Plan) error {
	return e.ask(ctx, func(c *conductor) error {
		if c.ending != nil {
			return ErrOver
		}
		c.recipe = recipe
		c.take(p)
		e.noteRun(func(r *state.Run) { r.Digest = p.Digest })
		return nil
	})
}

// Live returns the record and which blocks run now, for a plan against the live run.
func (e *Engine) Live(ctx context.Context) (*state.Run, map[addr.Block]plan.Observed, error) {
	seen := map[addr.Block]plan.Observed{}
	err := e.ask(ctx, func(c *conductor) error {
		for a, u := range c.units {
			seen[a] = plan.Observed{Alive: u.life != nil || u.waiting != nil || u.checks != nil, Phase: string(u.phase)}
		}
		return nil
	})
	return e.store.Run(), seen, err
}
