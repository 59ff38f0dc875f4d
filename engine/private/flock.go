package private

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// lockEvery is how often a held lock is tried again.
const lockEvery = 200 * time.Millisecond

// Lock waits for a lock file, which is released when its process ends. The file and its folder are made if missing.
// other says for messages who holds it meanwhile.
func Lock(ctx context.Context, path, other string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return wait(ctx, f, other)
}

// LockFolder waits for the lock of a folder itself, so that nothing is left in it. Where the file system has no locks
// of folders (NFS), there is none to wait for.
func LockFolder(ctx context.Context, path, other string) (unlock func(), err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	unlock, err = wait(ctx, f, other)
	if errors.Is(err, syscall.EBADF) || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.ENOLCK) {
		return func() {}, nil
	}
	return unlock, err
}

// wait takes the lock of an open file, and closes it when that fails.
func wait(ctx context.Context, f *os.File, other string) (unlock func(), err error) {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("wait for %s (%s): %w", other, f.Name(), context.Cause(ctx))
		case <-time.After(lockEvery):
		}
	}
}
