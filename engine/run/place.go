package run

import (
	"context"
	"errors"
	"fmt"

	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/remote"
	"github.com/recipe-rl/recipe/engine/state"
)

// elsewhere is what a Host can do whose processes work in directories of this machine: see host.Elsewhere.
type elsewhere interface {
	Elsewhere(ctx context.Context, dir string, certain bool) (pid int, yes bool)
}

var _ elsewhere = Processes{}

// Elsewhere reports whether the process recorded in dir is alive and works in another directory.
func (Processes) Elsewhere(ctx context.Context, dir string, certain bool) (int, bool) {
	return host.Elsewhere(ctx, dir, certain, nil)
}

// mover is what a Host can do whose processes work in directories of this machine: see host.Moved.
type mover interface {
	Moved(ctx context.Context, dir string) (from string)
}

var _ mover = Processes{}

// Moved says where the directory of a live process lay when that was started, when that is no longer where it lies.
func (Processes) Moved(ctx context.Context, dir string) string { return host.Moved(ctx, dir, nil) }

// movedFrom is Moved of a host that can tell.
func movedFrom(ctx context.Context, h Host, dir string) string {
	if m, ok := h.(mover); ok {
		return m.Moved(ctx, dir)
	}
	return ""
}

// Belongs returns a *state.ForeignError when the run in dir is a copy of a run that lies elsewhere: its processes are
// not to be touched.
func Belongs(ctx context.Context, dir state.Dir, h Host) error {
	return dir.Belongs(func(certain bool) (int, bool) {
		looker, ok := h.(elsewhere)
		if !ok {
			return 0, false
		}
		rec, err := state.Read(dir)
		if err != nil {
			return 0, false // whoever opens the run says so
		}
		for a := range rec.Blocks {
			if pid, yes := looker.Elsewhere(ctx, dir.Block(a), certain); yes {
				return pid, true
			}
		}
		return 0, false
	})
}

// settle writes down where the run lies, and brings the paths in its record there when it was moved.
func (e *Engine) settle() error {
	was, ok, err := e.opts.Dir.Recorded()
	if err != nil {
		return err
	}
	here, err := e.opts.Dir.Here()
	if err != nil {
		return err
	}
	if !ok { // a new run, or one whose maker has left out where it was made: they may have kept copies
		if err := errors.Join(e.opts.Dir.RenewKey(), remote.ForgetAuthority(string(e.opts.Dir))); err != nil {
			return err
		}
	}
	if ok && was.Path != here.Path && e.opts.Dir.Exists() {
		if err := e.store.Rewrite(func(r *state.Run) { r.Relocate(was, here) }); err != nil {
			return err
		}
	}
	if err := e.opts.Dir.Settle(); err != nil {
		return err
	}
	return e.distrust()
}

// distrust drops recorded weights that lie outside the run directory: recipe puts them nowhere else, so the
// record was edited. The trainer brings its weights again.
func (e *Engine) distrust() error {
	path := e.store.Policy().Weights
	if path == "" || e.opts.Dir.Holds(path) {
		return nil
	}
	if err := e.store.Rewrite(func(r *state.Run) { r.Policy.Weights, r.Policy.Format = "", "" }); err != nil {
		return err
	}
	e.notice("warn", fmt.Sprintf("the run's record names weights outside the run directory: %s. They are not used; "+
		"inference waits for the weights of its trainer, or starts with those of its block", path))
	return nil
}
