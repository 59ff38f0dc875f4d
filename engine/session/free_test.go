package session

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/state"
)

// lockedRun is the directory of a run whose lock is held although no engine answers, as while an engine starts or ends.
func lockedRun(t *testing.T) (state.Dir, *state.Lock) {
	t.Helper()
	dir := state.DirOf(t.TempDir(), "r")
	if err := dir.Make(); err != nil {
		t.Fatal(err)
	}
	store, err := state.OpenStore(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	store.Note(func(r *state.Run) { r.Status = state.Stopped })
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if err := dir.Settle(); err != nil {
		t.Fatal(err)
	}
	lock, err := state.TryLock(dir, "apply")
	if err != nil {
		t.Fatal(err)
	}
	return dir, lock
}

// An engine that ends closes its socket before it releases its lock: a destroy that comes in between waits.
func TestDestroyWaitsForAnEngineThatEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, destroyWaits)
}

// destroyWaits runs with a clock that advances only while all goroutines wait.
func destroyWaits(t *testing.T) {
	dir, lock := lockedRun(t)
	destroyed := make(chan error, 1)
	go func() {
		_, err := Destroy(t.Context(), dir, run.Processes{}, true)
		destroyed <- err
	}()
	time.Sleep(lockTimeout / 2)
	if len(destroyed) > 0 {
		t.Fatalf("destroyed (%v) while an engine held the lock", <-destroyed)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * letGoPoll)
	if len(destroyed) == 0 {
		t.Fatal("the lock is free and the run is not destroyed")
	}
	if err := <-destroyed; err != nil {
		t.Fatal(err)
	}
	if dir.Exists() {
		t.Error("the run is still there")
	}
}

func TestWhatIsWaitedFor(t *testing.T) {
	t.Parallel()
	take := func(dir state.Dir, calls *int, unlock func() error) func() (*state.Lock, error) {
		return func() (*state.Lock, error) {
			if *calls++; *calls == 3 && unlock != nil {
				if err := unlock(); err != nil {
					return nil, err
				}
			}
			return state.TryLock(dir, "test")
		}
	}
	t.Run("a lock that becomes free", func(t *testing.T) {
		t.Parallel()
		dir, held := lockedRun(t)
		calls := 0
		lock, err := whenFree(t.Context(), dir, false, take(dir, &calls, held.Unlock))
		if err != nil || calls != 3 {
			t.Fatalf("%v after %d calls; want the lock after 3", err, calls)
		}
		if err := lock.Unlock(); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("not an engine that answers", func(t *testing.T) {
		t.Parallel()
		dir, held := lockedRun(t)
		defer func() { _ = held.Unlock() }()
		path, err := listenPath(dir)
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.NotFoundHandler()}
		l := listen(t, path)
		done := make(chan struct{})
		go func() { defer close(done); _ = server.Serve(l) }()
		defer func() { _ = server.Close(); <-done }()
		calls := 0
		var locked *state.LockedError
		if _, err := whenFree(t.Context(), dir, false, take(dir, &calls, nil)); !errors.As(err, &locked) || calls != 1 {
			t.Errorf("%v after %d calls; want that it is locked after 1", err, calls)
		}
	})
	t.Run("no longer than its context", func(t *testing.T) {
		t.Parallel()
		dir, held := lockedRun(t)
		defer func() { _ = held.Unlock() }()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		calls := 0
		var locked *state.LockedError
		if _, err := whenFree(ctx, dir, false, take(dir, &calls, nil)); !errors.As(err, &locked) {
			t.Errorf("%v; want that it is locked", err)
		}
	})
	t.Run("no other error", func(t *testing.T) {
		t.Parallel()
		missing := state.Dir(filepath.Join(t.TempDir(), "none"))
		calls := 0
		if _, err := whenFree(t.Context(), missing, false, take(missing, &calls, nil)); err == nil || calls != 1 {
			t.Errorf("%v after %d calls; want an error after 1", err, calls)
		}
	})
}
