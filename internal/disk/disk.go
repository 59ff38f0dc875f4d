// Package disk says whether an error means that a disk has no room left, and how much room there is. Programs that must
// not lose data wait for room instead of failing.
package disk

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"
)

// RetryEvery is how often a writer that waits for room tries again.
const RetryEvery = 250 * time.Millisecond

// Full says whether an error means that the disk, or the user's quota on it, has no room left. Room can come back, so
// waiting helps. A file that exceeds the limit of the process (EFBIG) and a disk that fails (EIO) are not among them:
// they do not pass by themselves.
func Full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// Refused reports whether the disk refused a write, for lack of room or for another reason that a
// person can remedy while the writer waits: rights, a file in the way, a mount that is gone or read-only, a fault.
func Refused(err error) bool {
	for _, errno := range []syscall.Errno{syscall.EACCES, syscall.EPERM, syscall.EROFS, syscall.EIO, syscall.ENOTDIR,
		syscall.ENOENT, syscall.ENODEV, syscall.ENXIO, syscall.ESTALE, syscall.ETIMEDOUT, syscall.ENOTCONN} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return Full(err)
}

// NoRoom is the error of another process, which is told as text, that a disk has no room left: Full knows it.
func NoRoom(text string) error { return noRoom(text) }

type noRoom string

func (e noRoom) Error() string { return string(e) }

// Is makes it one of those that Full looks for.
func (e noRoom) Is(target error) bool { return target == syscall.ENOSPC }

// retryAtLeast is how often what failed for lack of room is tried again although no room was seen to come back: a quota
// shows nowhere else.
const retryAtLeast = 10 * time.Second

// Retry calls f until it does not fail for lack of room, and returns its error, or that of ctx. See RetryWhile.
func Retry(ctx context.Context, path string, tell func(string), f func() error) error {
	return RetryWhile(ctx, path, Full, tell, f)
}

// RetryWhile calls f until it does not fail with an error that is worth waiting for: Full or Refused. What f writes may
// be large, so it is called again only when the disk of path has more room than f has left behind, or after a while.
// Tell is called with what is waited for, and with an empty text when that is over.
func RetryWhile(ctx context.Context, path string, wait func(error) bool, tell func(string), f func() error) error {
	told := false
	for {
		err := f()
		if !wait(err) {
			if told {
				tell("")
			}
			return err
		}
		if ctx.Err() != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		before, _ := Free(path)
		if !told {
			told = true
			tell(Waiting(path, err))
		}
		if ended := awaitRoom(ctx, path, before); ended != nil {
			return errors.Join(ended, err)
		}
	}
}

// awaitRoom returns when trying again may help.
func awaitRoom(ctx context.Context, path string, before uint64) error {
	tick := time.NewTicker(RetryEvery)
	defer tick.Stop()
	for begun := time.Now(); time.Since(begun) < retryAtLeast; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		if now, err := Free(path); err != nil || now > before {
			return nil
		}
	}
	return nil
}

// Free is how many bytes an ordinary user can still write to the disk that holds path, or its nearest parent that
// exists.
func Free(path string) (uint64, error) {
	for {
		var s syscall.Statfs_t
		err := syscall.Statfs(path, &s)
		if err == nil {
			return s.Bavail * uint64(s.Bsize), nil
		}
		parent := filepath.Dir(path)
		if !errors.Is(err, syscall.ENOENT) || parent == path {
			return 0, fmt.Errorf("asking how much room the disk of %s has: %w", path, err)
		}
		path = parent
	}
}

// Waiting describes a writer that waits for the disk of path, in words for people.
func Waiting(path string, err error) string {
	if !Full(err) {
		return fmt.Sprintf("waits for %s to become writable: %v", path, err)
	}
	room := "an unknown number of bytes"
	if n, ferr := Free(path); ferr == nil {
		room = Size(n)
	}
	return fmt.Sprintf("waits for room on the disk of %s (%s free): %v", path, room, err)
}

// Size writes a number of bytes as people say it.
func Size(n uint64) string {
	const unit = 1000
	if n < unit {
		return fmt.Sprintf("%d bytes", n)
	}
	value, prefix := float64(n), -1
	for value >= unit && prefix < 4 {
		value /= unit
		prefix++
	}
	return fmt.Sprintf("%.1f %cB", value, "kMGTP"[prefix])
}
