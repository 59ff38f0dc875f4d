package store

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// A log file that nothing refers to any more is written again under the next number instead of being deleted. Its
// blocks are allocated and its pages are in memory: a write and its forcing take half of the processor's time, and a
// single one a third of the wait (docs/benchmarks/trajectories.md). What it held cannot come back: a frame's checksum
// starts from its file's seed, and the file gets a new one before it gets its new name.

// maxSpare is how many files are kept for that. Files fill and empty at the same rate in the long run.
const maxSpare = 2

// retire keeps an unused file, or deletes it.
func (b *bodies) retire(s *segment) {
	if !b.reuse || len(b.spare) >= maxSpare || s.size < b.limit || s.size > 2*b.limit {
		b.remove(s)
		return
	}
	b.mu.Lock()
	delete(b.segments, s.number)
	b.mu.Unlock()
	b.spare = append(b.spare, s)
}

// discard deletes the files that are kept, and says whether there were any.
func (b *bodies) discard() bool {
	had := len(b.spare) > 0
	for _, s := range b.spare {
		b.remove(s)
	}
	b.spare = nil
	return had
}

// again makes a file that is kept the one with the next number; nil when there is none that can be.
func (b *bodies) again() *segment {
	for len(b.spare) > 0 {
		s := b.spare[len(b.spare)-1]
		b.spare = b.spare[:len(b.spare)-1]
		seed, err := b.renew(s)
		if err == nil {
			return &segment{number: b.next, file: s.file, seed: seed, size: int64(headSize), forced: int64(headSize)}
		}
		b.remove(s) // a new file will do, or says what is wrong
	}
	return nil
}

// renew gives a file a new seed, then its new name. Both are on the disk when it returns.
func (b *bodies) renew(s *segment) (seed uint32, err error) {
	from, to := b.name(s.number), b.name(b.next)
	if _, err := os.Lstat(to); err == nil { // a file of somebody else is not replaced
		return 0, fmt.Errorf("beginning a file of trajectories again: %s: %w", to, fs.ErrExist)
	}
	head := newHead()
	if _, err := s.file.WriteAt(head, 0); err != nil {
		return 0, fmt.Errorf("beginning a file of trajectories again: %w", err)
	}
	if err := datasync(s.file); err != nil {
		return 0, fmt.Errorf("beginning a file of trajectories again: %w", err)
	}
	if err := os.Rename(from, to); err != nil {
		return 0, fmt.Errorf("beginning a file of trajectories again: %w", err)
	}
	if err := syncDir(b.dir); err != nil {
		return 0, errors.Join(err, os.Remove(to))
	}
	return seedOf(head), nil
}

// newHead is the beginning of a file, with a seed of its own.
func newHead() []byte {
	head := append([]byte(magic), make([]byte, headSize-len(magic))...)
	_, _ = rand.Read(head[len(magic):]) // never fails
	return head
}
