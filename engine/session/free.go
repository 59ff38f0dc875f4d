package session

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/recipe-rl/recipe/engine/state"
)

// lockTimeout is how long the lock of an engine that answers no more, or not yet, is waited for.
const lockTimeout = time.Minute

// whenFree calls take until it does not fail because the run is locked. An engine closes its socket before it lets go
// of the lock, and takes the lock before it opens its socket: in between nobody answers, and a command that comes then
// waits. It does not wait for an engine that answers, unless evenLive is set, nor for one on another machine, whose
// socket cannot be asked.
func whenFree[T any](ctx context.Context, dir state.Dir, evenLive bool, take func() (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	tick := time.NewTicker(letGoPoll)
	defer tick.Stop()
	for {
		got, err := take()
		var locked *state.LockedError
		if !errors.As(err, &locked) || !onThisMachine(locked.Owner) || !evenLive && answers(ctx, dir) {
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

func answers(ctx context.Context, dir state.Dir) bool {
	c, err := Dial(ctx, dir)
	if err != nil {
		return false
	}
	c.Close()
	return true
}
