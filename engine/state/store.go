package state

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/recipe-rl/recipe/schema/addr"
)

// Read returns what is recorded in dir, or a new, empty run when nothing is.
func Read(dir Dir) (*Run, error) {
	b, err := dir.readFile("run.json", maxFile)
	if errors.Is(err, os.ErrNotExist) {
		return &Run{Format: FormatVersion, Status: New, Blocks: map[addr.Block]*Block{}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the run's record: %w", err)
	}
	return parse(dir, b)
}

func parse(dir Dir, b []byte) (*Run, error) {
	damaged := func(err error) error {
		return fmt.Errorf("the run's record %s is damaged (%w). What runs now is not touched. Restore it from a backup, or move the folder %s away to begin a new run; "+
			"its checkpoints stay in %s/checkpoints", dir.file(), err, dir, dir)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	var r Run
	if err := dec.Decode(&r); err != nil {
		return nil, damaged(err)
	}
	if r.Format < 1 || r.ID == "" {
		return nil, damaged(errors.New("it has no format_version or no id"))
	}
	if r.Format > FormatVersion {
		return nil, fmt.Errorf("the run's record %s has format version %d; this engine reads up to %d: use the newer recipe that wrote it", dir.file(), r.Format, FormatVersion)
	}
	if r.Blocks == nil {
		r.Blocks = map[addr.Block]*Block{}
	}
	for a, blk := range r.Blocks {
		if blk == nil {
			return nil, damaged(fmt.Errorf("block %s is null", a))
		}
		compact(blk.Config)
		compact(blk.Outputs)
	}
	return &r, nil
}

// compact undoes the indentation of the file inside raw values: they are compared byte by byte.
func compact(values map[string]json.RawMessage) {
	for k, v := range values {
		var b bytes.Buffer
		if json.Compact(&b, v) == nil {
			values[k] = b.Bytes()
		}
	}
}

// Store holds the record of a run whose lock this process holds. Every change is on disk before the call returns.
type Store struct {
	dir   Dir
	mu    sync.Mutex
	run   *Run
	wrote func()
}

// OpenStore reads the record, making a new one with a fresh id when there is none. wrote, if not nil, is called after every write.
func OpenStore(dir Dir, wrote func()) (*Store, error) {
	r, err := Read(dir)
	if err != nil {
		return nil, err
	}
	if r.ID == "" {
		if r.ID, err = NewID(); err != nil {
			return nil, err
		}
	}
	return &Store{dir: dir, run: r, wrote: wrote}, nil
}

// NewID makes the id of a run.
func NewID() (string, error) {
	id := make([]byte, 8)
	if _, err := rand.Read(id); err != nil {
		return "", fmt.Errorf("making a run id: %w", err)
	}
	return hex.EncodeToString(id), nil
}

// Run returns a copy of the record.
func (s *Store) Run() *Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run.Clone()
}

// Update changes the record and writes it to disk, synced. When writing fails the change is undone.
func (s *Store) Update(change func(*Run)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.run.Clone()
	change(next)
	b, err := json.MarshalIndent(next, "", " ")
	if err != nil {
		return fmt.Errorf("writing the run's record: %w", err)
	}
	if err := writeAtomic(s.dir.file(), append(b, '\n')); err != nil {
		return fmt.Errorf("writing the run's record: %w", err)
	}
	s.run = next
	if s.wrote != nil {
		s.wrote()
	}
	return nil
}

// UpdateBlock changes the record of one block, making it when it is new.
func (s *Store) UpdateBlock(a addr.Block, change func(*Block)) error {
	return s.Update(func(r *Run) {
		b := r.Blocks[a]
		if b == nil {
			b = &Block{}
			r.Blocks[a] = b
		}
		change(b)
	})
}
