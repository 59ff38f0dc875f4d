package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/remote"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/internal/eventlog"
	"github.com/recipe-rl/recipe/sdk"
)

// Belongs rejects a run directory that was copied from elsewhere, with a remedy.
func Belongs(ctx context.Context, dir state.Dir, h run.Host) error {
	return explained(run.Belongs(ctx, dir, h))
}

func explained(err error) error {
	var foreign *state.ForeignError
	if errors.As(err, &foreign) {
		return &sdk.Error{Summary: "nothing was done", Err: err, Remedy: foreign.Remedy()}
	}
	return err
}

// Claim turns a copied or moved run directory into a separate run, which continues from its copies of the checkpoints;
// with fresh, everything except the checkpoints is removed. No process is touched: those in the record belong to the
// original run.
func Claim(dir state.Dir, fresh bool) (Destroyed, error) {
	var out Destroyed
	lock, err := state.TryLock(dir, "recipe claim")
	if err != nil {
		return out, err
	}
	defer func() { _ = lock.Unlock() }()
	if fresh {
		if err := Removable(dir, false); err != nil {
			return out, err
		}
		return out, forget(dir, false, &out)
	}
	rec, err := state.Read(dir)
	if err != nil {
		return out, err
	}
	for a := range rec.Blocks {
		// Events that no engine has read yet may name programs of the original.
		for _, name := range []string{host.RecordName, eventlog.FileName, eventlog.FileName + ".old"} {
			if err := os.Remove(filepath.Join(dir.Block(a), name)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return out, fmt.Errorf("remove the processes of another run from the record of %s: %w", a, err)
			}
		}
	}
	// Who had the original may have kept copies.
	if err := errors.Join(dir.RenewKey(), remote.ForgetAuthority(string(dir))); err != nil {
		return out, err
	}
	was, _, err := dir.Recorded()
	if err != nil {
		was = state.Place{}
	}
	here, err := dir.Here()
	if err != nil {
		return out, err
	}
	store, err := state.OpenStore(dir, nil)
	if err != nil {
		return out, err
	}
	id, err := state.NewID()
	if err != nil {
		return out, err
	}
	err = store.Rewrite(func(r *state.Run) { disown(r, id, was, here) })
	if err = cmp.Or(err, store.Close()); err != nil {
		return out, err
	}
	return out, dir.Settle()
}

// disown removes from a record what belongs to the original run.
func disown(r *state.Run, id string, was, here state.Place) {
	r.ID, r.Engine = id, state.Engine{}
	if r.Status == state.Running {
		r.Status = state.Stopped
	}
	if was.Path != "" {
		r.Relocate(was, here)
	}
	for _, b := range r.Blocks {
		b.Handle, b.Listen = nil, ""
		if b.Intent != state.IntentDone {
			b.Intent = state.IntentStop
			if !sdk.Phase(b.Phase).Over() {
				b.Phase = string(sdk.Stopped)
			}
		}
	}
}
