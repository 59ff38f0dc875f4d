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
	"time"

	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/schema/addr"
)

// syncWithin is how long a change may stay unsynced if no caller waits for it. It survives a killed engine; only a
// power failure can lose it, after which none of the run's processes is alive.
const syncWithin = 200 * time.Millisecond

// Store holds the record of a run whose lock this process holds. It is safe for concurrent use.
//
// Note writes a change at once, as one line of the journal; from then on it survives a killed engine. Sync syncs all
// changes so far. When the disk is full, a change stays in memory and is written by a later Note or Sync.
type Store struct {
	dir   Dir
	wrote func()

	mu      sync.Mutex
	run     *Run // its blocks are never changed, only replaced
	journal *journal
	written os.FileInfo // run.json, as it was written last
	fresh   bool        // the next write replaces the snapshot and starts a new journal
	limit   int64
	dirty   dirty
	failed  error // of the last write; nil when nothing is unwritten

	synced  uint64        // number of the newest synced change
	syncing *journal      // the journal being synced
	settled chan struct{} // closed when that sync has ended
	timer   *time.Timer   // of the background sync
	closed  bool
}

// dirty lists the changes since the last line of the journal.
type dirty struct {
	run    bool
	blocks map[addr.Block]bool
}

func (d dirty) empty() bool { return !d.run && len(d.blocks) == 0 }

// OpenStore reads the record, or creates one with a new id. wrote, if not nil, is called after every write.
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
	r.Format = FormatVersion
	return &Store{dir: dir, run: r, wrote: wrote, fresh: true, limit: journalBytes,
		dirty: dirty{blocks: map[addr.Block]bool{}}}, nil
}

// NewID creates the id of a run.
func NewID() (string, error) {
	id := make([]byte, 8)
	if _, err := rand.Read(id); err != nil {
		return "", fmt.Errorf("create a run id: %w", err)
	}
	return hex.EncodeToString(id), nil
}

// Run returns a copy of the record.
func (s *Store) Run() *Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run.Clone()
}

// ID is the id of the run.
func (s *Store) ID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run.ID
}

// Policy is the newest policy version that inference is verified to serve.
func (s *Store) Policy() Policy {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run.Policy
}

// Block returns a copy of the record of one block, or nil.
func (s *Store) Block(a addr.Block) *Block {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.run.Blocks[a]; b != nil {
		return b.clone()
	}
	return nil
}

// Note changes the record of the run as a whole, without its blocks; see NoteBlock.
func (s *Store) Note(change func(*Run)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := *s.run
	next.Blocks = nil
	change(&next)
	next.Blocks = s.run.Blocks
	s.run, s.dirty.run = &next, true
	_ = s.write() // kept for the next write, and returned by Sync
}

// NoteBlock changes or creates the record of one block.
func (s *Store) NoteBlock(a addr.Block, change func(*Block)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := &Block{}
	if b := s.run.Blocks[a]; b != nil {
		next = b.clone()
	}
	change(next)
	s.run.Blocks[a] = next
	s.dirty.blocks[a] = true
	_ = s.write()
}

// Remove removes the record of a block.
func (s *Store) Remove(a addr.Block) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.run.Blocks, a)
	s.dirty.blocks[a] = true
	_ = s.write()
}

// Rewrite changes anything in the record, including its blocks, and writes all of it to run.json, synced. On an error
// nothing has changed.
func (s *Store) Rewrite(change func(*Run)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.run
	next := before.Clone()
	change(next)
	next.Changes++
	s.run = next
	if err := s.snapshot(); err != nil {
		s.run = before
		return fmt.Errorf("write the run's record: %w", err)
	}
	s.dirty = dirty{blocks: map[addr.Block]bool{}}
	s.failed = nil
	if s.wrote != nil {
		s.wrote()
	}
	return nil
}

// Sync syncs all changes so far. Changes that cannot be written stay in memory for the next call.
func (s *Store) Sync() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.write(); err != nil {
		return err
	}
	return s.sync(s.run.Changes)
}

// Failed is why the newest changes are not written; nil when they are.
func (s *Store) Failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// Fold writes everything into run.json and empties the journal. Without disk space for it, the journal is kept.
func (s *Store) Fold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fold()
}

func (s *Store) fold() {
	if s.journal != nil && s.journal.size > 0 && s.dirty.empty() && s.snapshot() == nil && s.wrote != nil {
		s.wrote()
	}
}

// Close syncs the record, folds the journal into run.json, and closes the files.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.journal == nil && s.dirty.empty() {
		return nil // nothing was ever written
	}
	err := s.write()
	if err == nil {
		err = s.sync(s.run.Changes)
	}
	if err == nil {
		s.fold()
	}
	if s.journal != nil {
		s.journal.close()
	}
	return err
}

// write appends the changes to the journal, or folds everything into a new snapshot when due.
func (s *Store) write() error {
	if s.dirty.empty() {
		return nil
	}
	s.run.Changes++
	err := s.put()
	if s.failed = err; err != nil {
		s.run.Changes--
		return fmt.Errorf("write the run's record: %w", err)
	}
	s.dirty = dirty{blocks: map[addr.Block]bool{}}
	if s.wrote != nil {
		s.wrote()
	}
	if s.timer == nil && !s.closed {
		s.timer = time.AfterFunc(syncWithin, s.syncLater)
	}
	return nil
}

func (s *Store) put() error {
	if s.fresh {
		return s.snapshot()
	}
	if s.journal.size > s.limit {
		if err := s.snapshot(); err == nil {
			return nil
		}
		s.limit = 2 * s.journal.size // no space for a second copy: the journal is continued
		if s.fresh {                 // neither does the journal
			return s.snapshot()
		}
	}
	line := change{N: s.run.Changes, Blocks: map[addr.Block]*Block{}}
	if s.dirty.run {
		fields := *s.run
		fields.Blocks = nil
		line.Run = &fields
	}
	for a := range s.dirty.blocks {
		line.Blocks[a] = s.run.Blocks[a]
	}
	err := s.journal.append(line)
	if errors.Is(err, errTorn) {
		s.fresh = true
	}
	return err
}

// snapshot writes the whole record, synced, and starts a new journal.
func (s *Store) snapshot() error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", " ")
	if err := enc.Encode(s.run); err != nil {
		return err
	}
	if err := private.WriteFile(s.dir.file(), b.Bytes()); err != nil {
		return err
	}
	// The snapshot now contains the old journal, which must not be written any more.
	s.fresh = true
	next, err := newJournal(s.dir.journal(), header{Journal: journalVersion, Run: s.run.ID, After: s.run.Changes})
	if err != nil {
		return err
	}
	s.retire()
	s.written, _ = os.Lstat(s.dir.file()) // nil looks like a replaced file, which is written again
	s.journal, s.fresh, s.synced = next, false, s.run.Changes
	s.limit = max(journalBytes, 2*int64(b.Len()))
	return nil
}

// retire closes the journal in use, after a sync in progress.
func (s *Store) retire() {
	if s.journal == nil {
		return
	}
	if s.syncing == s.journal {
		s.journal.retired = true
		return
	}
	s.journal.close()
}

// sync returns when change n is synced. One caller syncs for all that wait. The lock is held at the call and at the
// return.
func (s *Store) sync(n uint64) error {
	for s.synced < n {
		if s.syncing != nil {
			settled := s.settled
			s.mu.Unlock()
			<-settled
			s.mu.Lock()
			continue
		}
		j, upTo := s.journal, s.run.Changes
		s.syncing, s.settled = j, make(chan struct{})
		s.mu.Unlock()
		err := j.file.Sync()
		s.mu.Lock()
		s.syncing = nil
		close(s.settled)
		if j.retired {
			j.close()
			continue // a snapshot was written meanwhile and contains everything
		}
		if err != nil {
			// The kernel may have dropped unwritten data: the content of this file is no longer trusted.
			s.fresh, s.dirty.run, s.failed = true, true, err
			return fmt.Errorf("sync the run's record: %w", err)
		}
		s.synced = max(s.synced, upTo)
	}
	return nil
}

func (s *Store) syncLater() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = nil
	if s.closed || s.failed != nil || s.synced >= s.run.Changes {
		return
	}
	_ = s.sync(s.run.Changes) // reported by the next Sync
}
