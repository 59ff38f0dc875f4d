package event

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/recipe-rl/recipe/engine/private"
)

// OpenAfter is Open of a log whose next event has a number above after, also when the files with the events up to that
// one were deleted. Readers that keep the number of the last event they have read then miss none of the new ones.
func OpenAfter(dir string, after uint64) (*Log, error) {
	l, err := open(dir)
	if err != nil {
		return nil, err
	}
	if l.file == nil || l.last < after {
		l.last = max(l.last, after)
		if err := l.rotate(l.last + 1); err != nil {
			return nil, errors.Join(err, l.shut())
		}
	}
	return l, nil
}

func (l *Log) shut() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// Last is the number of the newest event.
func (l *Log) Last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// Restore notices that the newest file of the log, or its folder, was deleted or replaced while it is open, and writes
// it again with everything that was in it. It costs two system calls when nothing has happened.
func (l *Log) Restore() (restored bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return false, nil
	}
	open, err := l.file.Stat()
	if err != nil {
		return false, fmt.Errorf("looking at the event log: %w", err)
	}
	path := l.file.Name()
	there, err := os.Lstat(path)
	if err == nil && os.SameFile(open, there) {
		return false, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("looking at the event log: %w", err)
	}
	content := make([]byte, l.size)
	if _, err := io.ReadFull(io.NewSectionReader(l.file, 0, l.size), content); err != nil {
		return false, fmt.Errorf("reading the deleted file of the event log: %w", err)
	}
	if err := private.Dir(l.dir); err != nil {
		return false, fmt.Errorf("restoring the event log: %w", err)
	}
	if err := private.WriteFile(path, content); err != nil {
		return false, fmt.Errorf("restoring the event log: %w", err)
	}
	f, err := private.OpenFile(path, os.O_RDWR|os.O_APPEND)
	if err != nil {
		return false, fmt.Errorf("restoring the event log: %w", err)
	}
	_ = l.file.Close()
	l.file, l.torn = f, false
	return true, nil
}
