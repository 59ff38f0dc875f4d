package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/recipe-rl/recipe/internal/objectstore"
	"github.com/recipe-rl/recipe/sdk"
)

// Check uses every right that the archive needs, and writes what the run is, which says at once whether keys, bucket
// and rights are as they must be. It ends uploads that were cut off.
func (x *Archive) Check(ctx context.Context) error {
	err := x.bucket.Try(ctx, x.root())
	if err == nil {
		_, err = x.know(ctx)
	}
	if err == nil {
		err = x.bucket.RemoveParts(ctx, x.root())
	}
	if err != nil {
		return fmt.Errorf("keep checkpoints in a store: %w", err)
	}
	return nil
}

// Start checks the store, and fetches the newest checkpoint for an attempt that resumes, as Fetch does. Such an attempt
// waits some minutes for a store that does not answer. When that was in vain, it goes on from what this machine has,
// and says so; that may be older than what another machine has put into the store. An attempt that has nothing to go on
// from fails, and so does one that knows of a newer checkpoint in the store.
func (x *Archive) Start(ctx context.Context, resumes bool) (fetched string, err error) {
	if !resumes {
		if err := x.beginAnew(); err != nil {
			return "", err
		}
	}
	began, pause := time.Now(), firstPause
	var waits *sdk.Ongoing
	defer func() {
		if waits != nil {
			waits.End()
		}
	}()
	for {
		if err = x.Check(ctx); err == nil && resumes {
			fetched, err = x.Fetch(ctx)
		}
		if err == nil && resumes {
			if step, _, failed := x.NewestHere(); failed == nil { // nothing newer in the store is whole
				x.archived(max(0, step))
			}
		}
		if err == nil || ctx.Err() != nil || !resumes || isFinal(err) {
			return fetched, err
		}
		if time.Since(began)+pause > x.patience {
			return "", x.without(err)
		}
		if waits == nil {
			waits = x.host.Begin(sdk.Activity{What: x.bucket.String() + " to answer", Patience: x.patience})
			x.host.Log("warn", fmt.Sprintf("waits up to %s for %s, which has the checkpoints: %s", x.patience, x.bucket,
				sdk.Message(err)))
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		pause = min(2*pause, startPause)
	}
}

// isFinal reports whether another try would end the same.
func isFinal(err error) bool {
	return objectstore.IsRefused(err) || errors.Is(err, objectstore.ErrDamaged) || errors.Is(err, errNewer)
}

// without describes what becomes of an attempt whose store does not answer.
func (x *Archive) without(cause error) error {
	last, name, err := x.NewestHere()
	if err != nil || name == "" {
		return errors.Join(fmt.Errorf("the store has not answered for %s: %w", x.patience, cause), err)
	}
	known, err := x.here()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if known.Archived > last {
		return &sdk.Error{Summary: fmt.Sprintf("%s has the checkpoint of step %d and has not answered for %s; the newest on "+
			"this machine is %s, which is older", x.bucket, known.Archived, x.patience, name), Err: cause,
			Remedy: "run recipe apply when the store answers; to train the steps since " + name + " again instead, remove " +
				filepath.Join(x.dir, HeldFolder, begunFile)}
	}
	x.host.Log("error", fmt.Sprintf("%s has not answered for %s: the trainer goes on from %s, the newest on this "+
		"machine. If the store has a newer one, because another machine trained meanwhile, the steps since then are "+
		"trained again. To prevent that, stop the run until the store is back. Cause: %s", x.bucket, x.patience, name,
		sdk.Message(cause)))
	return nil
}
