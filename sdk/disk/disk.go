// Package disk says whether an error means that a disk has no room left, and how much room there is. Programs that must
// not lose what they were given wait for room instead of failing.
package disk

import (
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

// Waiting describes a writer that waits for room at path, in words for people.
func Waiting(path string, err error) string {
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
