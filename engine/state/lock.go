package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/recipe-rl/recipe/engine/private"
)

// Owner is the engine that holds the lock, as recorded in the lock file.
type Owner struct {
	PID     int       `json:"pid"`
	Host    string    `json:"host"`
	Command string    `json:"command"`
	Build   string    `json:"build,omitempty"` // of its program
	Since   time.Time `json:"since"`
}

// Lock is held by the engine of a run. It is released when the process ends in any way.
type Lock struct{ file *os.File }

// LockedError names which engine holds the run.
type LockedError struct {
	Dir   Dir
	Owner Owner
}

func (e *LockedError) Error() string {
	return fmt.Sprintf(
		"another engine owns this run: pid %d on %s (%s, since %s). Use `recipe status`, `recipe logs -f` or "+
			"`recipe stop`, or wait until it ends",
		e.Owner.PID, e.Owner.Host, e.Owner.Command, e.Owner.Since.Format(time.RFC3339))
}

// TryLock takes the run's lock for this process, or returns a *LockedError.
func TryLock(dir Dir, command string) (*Lock, error) { return TryLockAs(dir, command, "") }

// TryLockAs is TryLock that records which build of recipe holds the lock.
func TryLockAs(dir Dir, command, build string) (*Lock, error) {
	path := filepath.Join(string(dir), "lock")
	f, err := take(path)
	if err != nil {
		if f == nil {
			return nil, fmt.Errorf("open the run's lock: %w", err)
		}
		defer func() { _ = f.Close() }()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		o, _ := readOwner(f)
		return nil, &LockedError{Dir: dir, Owner: o}
	}
	host, _ := os.Hostname()
	b, err := json.Marshal(Owner{PID: os.Getpid(), Host: host, Command: command, Build: build,
		Since: time.Now().UTC().Truncate(time.Second)})
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt(append(b, '\n'), 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("write the run's lock: %w", err)
	}
	return &Lock{file: f}, nil
}

// take opens and locks the file at path. The returned file is nil where it could not be opened. A file that has another
// name, too, as in a backup of hard links, is replaced by one that has none: what is written next would be in both.
func take(path string) (*os.File, error) { return takeIf(path, private.OneName) }

// mostReplaced is how often take replaces a file: some file systems count no names, or not as others do, and then the
// file that take has made is as good.
const mostReplaced = 3

func takeIf(path string, oneName func(path string) bool) (*os.File, error) {
	for replaced := 0; ; {
		f, err := private.OpenFile(path, os.O_CREATE|os.O_RDWR)
		if err != nil {
			return nil, err
		}
		if err := flock(f); err != nil {
			return f, err
		}
		mine, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		switch now, err := os.Lstat(path); {
		case err != nil || !os.SameFile(now, mine): // replaced since it was opened
		case replaced == mostReplaced || oneName(path):
			return f, nil
		default:
			if err := os.Remove(path); err != nil {
				return nil, errors.Join(err, f.Close())
			}
			replaced++
		}
		_ = f.Close()
	}
}

// lockPatience is how long the lock of a killed engine may still be held, by a forked child between fork and exec. It
// is also how long an engine may take to write its identity once it has the lock.
const lockPatience = 5 * time.Second

// flock takes the lock without waiting for a live engine.
func flock(f *os.File) error {
	for deadline := time.Now().Add(lockPatience); ; time.Sleep(20 * time.Millisecond) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) || !ownerGone(f) || time.Now().After(deadline) {
			return err
		}
	}
}

// ownerGone says whether the engine in the lock file was on this machine and has ended. A file that names no engine, or
// an earlier one, belongs to an engine that has just taken the lock.
func ownerGone(f *os.File) bool {
	o, ok := readOwner(f)
	if !ok {
		return true
	}
	here, err := os.Hostname()
	return err == nil && here == o.Host && errors.Is(syscall.Kill(o.PID, 0), syscall.ESRCH)
}

func readOwner(f *os.File) (o Owner, ok bool) {
	err := json.NewDecoder(io.NewSectionReader(f, 0, 1<<16)).Decode(&o)
	return o, err == nil && o.PID > 0
}

// Holder returns the engine that holds the run's lock, or nil.
func Holder(dir Dir) *Owner {
	f, err := private.OpenFile(filepath.Join(string(dir), "lock"), os.O_RDONLY)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	for deadline := time.Now().Add(lockPatience); ; time.Sleep(20 * time.Millisecond) {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err == nil {
			return nil
		}
		if o, _ := readOwner(f); !ownerGone(f) || time.Now().After(deadline) {
			return &o
		}
	}
}

// Unlock releases the run.
func (l *Lock) Unlock() error { return l.file.Close() }
