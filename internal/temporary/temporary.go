// Package temporary makes folders for temporary files that are removed even when the process that made them was killed:
// by the next one that makes a folder of the same prefix.
package temporary

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// LockName is the file in a folder that its maker holds a lock on, which ends with the process. Programs that it starts
// do not inherit it, unless it is passed to them.
const LockName = ".recipe-lock"

// Dir makes a folder for this user only whose name begins with prefix, in parent (empty: the folder for temporary
// files), and removes those of the same prefix there whose makers have ended. remove removes it.
func Dir(parent, prefix string) (path string, remove func() error, err error) {
	if parent == "" {
		parent = os.TempDir()
	}
	sweep(parent, prefix)
	path, held, err := locked(parent, prefix, func(made string) string { return strings.TrimPrefix(made, unnamed) })
	if err != nil {
		return "", nil, err
	}
	return path, func() error { return errors.Join(Remove(path), held.Close()) }, nil
}

// At makes the folder at a path whose last element begins with prefix, empty, and removes others as Dir does. Whoever
// has held open, this process or a program that inherits it, keeps the folder from being removed.
func At(path, prefix string) (held *os.File, err error) {
	sweep(filepath.Dir(path), prefix)
	if err := Remove(path); err != nil {
		return nil, err
	}
	_, held, err = locked(filepath.Dir(path), prefix, func(string) string { return filepath.Base(path) })
	return held, err
}

// Hold takes over a folder that another library has just made, whose name begins with prefix, and removes others as Dir
// does. Whoever has held open, this process or a program that inherits it, keeps the folder from being removed.
func Hold(dir, prefix string) (held *os.File, err error) {
	sweep(filepath.Dir(dir), prefix)
	// The lock has its name once it is held, so that nobody takes it for that of a process that has ended.
	made := filepath.Join(dir, LockName+".new")
	if held, err = lockFile(made, os.O_CREATE); err != nil {
		return nil, fmt.Errorf("lock the folder %s: %w", dir, err)
	}
	if err := os.Rename(made, filepath.Join(dir, LockName)); err != nil {
		return nil, errors.Join(fmt.Errorf("lock the folder %s: %w", dir, err), held.Close())
	}
	return held, nil
}

// unnamed begins the name of a folder until its lock is held, so that nobody takes it for one without a maker.
const unnamed = ".new-"

func locked(parent, prefix string, name func(made string) string) (path string, held *os.File, err error) {
	made, err := os.MkdirTemp(parent, unnamed+prefix)
	if err != nil {
		return "", nil, fmt.Errorf("make a folder for temporary files: %w", err)
	}
	held, err = lock(made, os.O_CREATE)
	if err == nil {
		path = filepath.Join(parent, name(filepath.Base(made)))
		if err = os.Rename(made, path); err == nil { // it fails when another user was quicker
			return path, held, nil
		}
		_ = held.Close()
	}
	return "", nil, errors.Join(fmt.Errorf("make a folder for temporary files: %w", err), os.RemoveAll(made))
}

// lock takes the lock of a folder, or fails when another process has it.
func lock(dir string, flag int) (*os.File, error) {
	return lockFile(filepath.Join(dir, LockName), flag)
}

func lockFile(path string, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW|flag, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// sweep removes what killed processes of this user have left. What cannot be removed stays for the next one.
func sweep(parent, prefix string) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if !entry.IsDir() || !strings.HasPrefix(entry.Name(), prefix) {
			continue
		}
		dir := filepath.Join(parent, entry.Name())
		if !own(dir) {
			continue
		}
		if held, err := lock(dir, 0); err == nil {
			_ = Remove(dir)
			_ = held.Close()
		}
	}
}

// own reports whether a path is a folder of this user, and no link to one.
func own(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}
