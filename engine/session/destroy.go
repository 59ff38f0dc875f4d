package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/recipe-rl/recipe/engine/remote"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/state"
)

// destroyTimeout is how long a live engine may take to release a run.
const destroyTimeout = 2 * time.Minute

// Destroyed is the result of Destroy.
type Destroyed struct {
	Ended int // processes that were still alive
	// Unsynced are offline runs of W&B that wandb sync has not passed on: they are kept, with the rest of the trackers.
	Unsynced    []string
	Checkpoints string // folder of the remaining checkpoints; empty when there are none
}

// Destroy ends every process of a run and removes its record, events, logs and queued groups. Checkpoints are kept,
// unless checkpoints is set, because they are expensive to make again.
func Destroy(ctx context.Context, dir state.Dir, host run.Host, checkpoints bool) (Destroyed, error) {
	var out Destroyed
	if err := Belongs(ctx, dir, host); err != nil {
		return out, err
	}
	if err := Removable(dir, checkpoints); err != nil {
		return out, err
	}
	lock, err := whenFree(ctx, dir, true, func() (*state.Lock, error) {
		if err := stopLive(ctx, dir); err != nil {
			return nil, err
		}
		return state.TryLock(dir, "recipe destroy")
	})
	if err != nil {
		return out, err
	}
	defer func() { _ = lock.Unlock() }()
	if err := dir.Check(); err != nil {
		return out, fmt.Errorf("nothing was ended or removed: %w", err)
	}
	rec, err := state.Read(dir)
	if err != nil {
		return out, err
	}
	var errs []error
	for a := range rec.Blocks {
		if _, alive := host.Probe(ctx, dir.Block(a)); alive {
			out.Ended++
		}
		if err := host.Sweep(ctx, dir.Block(a)); err != nil {
			errs = append(errs, fmt.Errorf("ending %s: %w", a, err))
		}
	}
	if host, ok := host.(interface {
		EndAll(ctx context.Context, run string) error
	}); ok {
		errs = append(errs, host.EndAll(ctx, string(dir)))
	}
	errs = append(errs, remote.EndRelay(ctx, string(dir)))
	if err := errors.Join(errs...); err != nil {
		return out, fmt.Errorf("nothing was removed: %w", err)
	}
	return out, forget(dir, checkpoints, &out)
}

// stopLive makes the engine of a run kill everything and waits until it has released the run. One that does not answer
// is killed; what it leaves is ended without it.
func stopLive(ctx context.Context, dir state.Dir) error {
	c, err := Dial(ctx, dir)
	if err == nil {
		defer c.Close()
		err = c.Stop(ctx, "recipe destroy", true)
	}
	var still *SilentError
	switch {
	case errors.Is(err, ErrNoEngine):
		return nil
	case errors.As(err, &still):
		return killEngine(ctx, dir)
	case err != nil && !errors.Is(err, run.ErrOver):
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, destroyTimeout)
	defer cancel()
	if err := letGo(ctx, dir); err != nil {
		return fmt.Errorf("wait for the engine to release the run: %w", err)
	}
	return nil
}
