package state

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/schema/addr"
)

// syncWithin is how long a change that nobody waits for may stay unsynced. It outlives a killed engine from the start;
// only a machine that loses its power can lose it, and then nothing of the run is alive.
const syncWithin = 200 * time.Millisecond

// Store holds the record of a run whose lock this process holds. It is safe for concurrent use.
//
// A change is written by Note at once, as one line of the journal, and outlives a killed engine from then on. Sync puts
// everything noted so far on the disk. When the disk is full a change stays in memory and is written by a later Note or
// Sync.
type Store struct {
	dir   Dir
	wrote func()

	mu      sync.Mutex
	run     *Run // its blocks are never changed, only replaced
	journal *journal
	fresh   bool // the next write replaces the snapshot and begins a new journal
	limit   int64
	dirty   dirty
	failed  error // of the last write; nil when nothing is unwritten

	synced  uint64        // number of the newest change that is on the disk for good
	syncing *journal      // the one that someone syncs now
	settled chan struct{} // closed when that has ended
	timer   *time.Timer   // of the sync that nobody waits for
	closed  bool
}

// dirty is what has changed since the last line of the journal.
type dirty struct {
	run    bool
	blocks map[addr.Block]bool
}

func (d dirty) empty() bool { return !d.run && len(d.blocks) == 0 }

// OpenStore reads the record, making a new one with a fresh id when there is none. wrote, if not nil, is called after
// every write.
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

// ID is the id of the run.
func (s *Store) ID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run.ID
}

// Policy is the newest policy version that inference was proved to serve.
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

// Note changes what is recorded of the run as a whole. The blocks are not given to change; see NoteBlock.
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

// NoteBlock changes the record of one block, making it when it is new.
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

// Remove forgets a block.
func (s *Store) Remove(a addr.Block) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.run.Blocks, a)
	s.dirty.blocks[a] = true
	_ = s.write()
}

// Rewrite changes anything in the record, its blocks too, and writes all of it to run.json, synced. When that fails
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
		return fmt.Errorf("writing the run's record: %w", err)
	}
	s.dirty = dirty{blocks: map[addr.Block]bool{}}
	s.failed = nil
	if s.wrote != nil {
		s.wrote()
	}
	return nil
}

// Sync puts everything noted so far on the disk. When it cannot, what could not be written stays in memory for the next
// time.
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

// Fold writes everything into run.json, so that the journal is empty. Without room for that the journal holds as much.
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

// Close syncs the record, folds the journal into run.json, and lets go of the files.
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

// write appends what has changed to the journal, or folds everything into a new snapshot when that is due.
func (s *Store) write() error {
	if s.dirty.empty() {
		return nil
	}
	s.run.Changes++
	err := s.put()
	if s.failed = err; err != nil {
		s.run.Changes--
		return fmt.Errorf("writing the run's record: %w", err)
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
		s.limit = 2 * s.journal.size // no room for a second copy: the journal goes on
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

// snapshot writes the whole record, synced, and begins a new journal behind it.
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
	// From here on the old journal holds nothing that the snapshot does not: lines must not go to it any more.
	s.fresh = true
	next, err := newJournal(s.dir.journal(), header{Journal: journalVersion, Run: s.run.ID, After: s.run.Changes})
	if err != nil {
		return err
	}
	s.retire()
	s.journal, s.fresh, s.synced = next, false, s.run.Changes
	s.limit = max(journalBytes, 2*int64(b.Len()))
	return nil
}

// retire closes the journal in use once nobody syncs it any more.
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

// sync returns when change n is on the disk. One caller syncs for all who wait. The lock is held at the call and at the
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
			continue // a snapshot came in between, and holds everything
		}
		if err != nil {
			// The system may have dropped what it could not write: nothing in this file is relied on any more.
			s.fresh, s.dirty.run, s.failed = true, true, err
			return fmt.Errorf("syncing the run's record: %w", err)
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
	_ = s.sync(s.run.Changes) // told by the next Sync
}
