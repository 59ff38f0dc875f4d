package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/recipe-rl/recipe/schema/addr"
)

// Holds reports whether the lock file in dir is the one that is held here. It is false after the directory was moved or
// removed.
func (l *Lock) Holds(dir Dir) bool {
	held, err := l.file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(filepath.Join(string(dir), "lock"))
	return err == nil && os.SameFile(held, there)
}

// Heal writes the record again when run.json or the journal is not as this store wrote it, and returns what was wrong:
// empty when nothing was. A record that was never written is left alone.
func (s *Store) Heal() (why string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.fresh || s.journal == nil {
		return "", nil
	}
	if why = s.damage(); why == "" {
		return "", nil
	}
	s.run.Changes++
	if err := s.snapshot(); err != nil {
		s.run.Changes--
		return "", fmt.Errorf("rewrite the run's record: %w", err)
	}
	s.dirty, s.failed = dirty{blocks: map[addr.Block]bool{}}, nil
	return why, nil
}

func (s *Store) damage() string {
	switch there, err := os.Lstat(s.dir.file()); {
	case errors.Is(err, os.ErrNotExist):
		return "run.json was deleted"
	case err != nil:
		return "" // the disk fails: the next write of the record reports it
	case s.written == nil || !os.SameFile(there, s.written):
		return "run.json was replaced"
	case there.Size() != s.written.Size() || !there.ModTime().Equal(s.written.ModTime()):
		return "run.json was overwritten"
	}
	open, err := s.journal.file.Stat()
	if err != nil {
		return ""
	}
	switch there, err := os.Lstat(s.dir.journal()); {
	case errors.Is(err, os.ErrNotExist):
		return "run.journal was deleted"
	case err != nil:
		return ""
	case !os.SameFile(there, open):
		return "run.journal was replaced"
	case there.Size() != s.journal.whole:
		return "run.journal was overwritten"
	}
	return ""
}
