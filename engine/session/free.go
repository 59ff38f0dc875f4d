package session

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/recipe-rl/recipe/engine/state"
)

// lockTimeout is how long to wait for the lock of an engine that is starting or ending and does not answer.
const lockTimeout = time.Minute

// whenFree calls take until it does not fail because the run is locked. An engine takes the lock before it opens its
// socket, and closes the socket before it releases the lock: in between no engine answers, and commands wait. It does
// not wait for an engine that answers, unless evenLive is set, nor for one on another machine, which cannot be asked.
func whenFree[T any](ctx context.Context, dir state.Dir, evenLive bool, take func() (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	tick := time.NewTicker(letGoPoll)
	defer tick.Stop()
	for {
		got, err := take()
		var locked *state.LockedError
		if !errors.As(err, &locked) || !onThisMachine(locked.Owner) {
			return got, err
		}
		if live, silent := answers(ctx, dir); silent != nil {
			return got, silent
		} else if live && !evenLive {
			return got, err
		}
		select {
		case <-ctx.Done():
			return got, err
		case <-tick.C:
		}
	}
}

func onThisMachine(o state.Owner) bool {
	here, err := os.Hostname()
	return err == nil && here == o.Host
}

// answers reports whether the engine of a run answers. The error names an engine that listens and does not.
func answers(ctx context.Context, dir state.Dir) (bool, error) {
	c, err := Dial(ctx, dir)
	if still := (*SilentError)(nil); errors.As(err, &still) {
		return false, err
	}
	if err != nil {
		return false, nil //nolint:nilerr // it starts or ends
	}
	c.Close()
	return true, nil
}
