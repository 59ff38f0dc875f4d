package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/schema/addr"
)

// The record of a run is a snapshot, run.json, and a journal of the changes since, run.journal: a header line, then a
// line per change. A line contains whole blocks, so applying it twice is harmless. Changes are numbered without gaps
// over snapshot and journal. A journal may start before its snapshot: lines that the snapshot contains are skipped.

// journalVersion is the version of the journal's lines.
const journalVersion = 1

// journalBytes is the size above which a journal is folded into a new snapshot.
const journalBytes = 1 << 20

// header is the first line of a journal.
type header struct {
	Journal int    `json:"journal"`
	Run     string `json:"run"`
	After   uint64 `json:"after"` // number of the last change in the snapshot that it follows
}

// change is every other line.
type change struct {
	N      uint64                `json:"n"`
	Run    *Run                  `json:"run,omitempty"`    // everything but its blocks
	Blocks map[addr.Block]*Block `json:"blocks,omitempty"` // null: the block was removed
}

// errTorn means that the journal ends with a partial line that cannot be cut off.
var errTorn = errors.New("a partial line cannot be cut off the journal")

// journal is an open journal.
type journal struct {
	file    *os.File
	whole   int64 // bytes of whole lines
	size    int64 // bytes of changes
	retired bool  // to be closed after its sync
}

// newJournal replaces the journal at path by an empty one. Readers of the old one are not disturbed.
func newJournal(path string, h header) (*journal, error) {
	b, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	if err := private.WriteFile(path, append(b, '\n')); err != nil {
		return nil, err
	}
	f, err := private.OpenFile(path, os.O_WRONLY|os.O_APPEND)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	return &journal{file: f, whole: int64(len(b)) + 1}, nil
}

func (j *journal) append(c change) error {
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	n, err := j.file.Write(append(b, '\n'))
	if err != nil {
		if n > 0 {
			if terr := j.file.Truncate(j.whole); terr != nil {
				return fmt.Errorf("%w: %w (%w)", err, errTorn, terr)
			}
		}
		return err
	}
	j.whole += int64(n)
	j.size += int64(n)
	return nil
}

func (j *journal) close() { _ = j.file.Close() }

func (d Dir) journal() string { return filepath.Join(string(d), "run.journal") }

// errMoved means that a journal belongs to a newer snapshot than the one that was read.
var errMoved = errors.New("the journal belongs to a newer snapshot")

// newerError is the version of a journal that a newer engine has written.
type newerError struct{ version int }

func (e newerError) Error() string {
	return fmt.Sprintf(
		"has version %d; this engine reads versions up to %d: use the newer recipe that wrote it", e.version,
		journalVersion)
}

// replay applies the journal to the snapshot r.
func replay(r *Run, journal []byte) error {
	lines := bytes.SplitAfter(journal, []byte("\n"))
	var h header
	if len(lines[0]) == 0 || lines[0][len(lines[0])-1] != '\n' {
		return nil // it is being created
	}
	if err := json.Unmarshal(lines[0], &h); err != nil || h.Journal < 1 {
		return fmt.Errorf("its first line is not the header of a journal: %.80q", lines[0])
	}
	if h.Run != r.ID {
		return nil // of an earlier run
	}
	if h.Journal > journalVersion {
		return newerError{h.Journal}
	}
	if h.After > r.Changes {
		return errMoved
	}
	for i, line := range lines[1:] {
		var c change
		if len(line) == 0 || line[len(line)-1] != '\n' {
			return nil // the last line, incomplete because it is being written or the engine was killed
		}
		if err := json.Unmarshal(line, &c); err != nil {
			if !readable(lines[i+2:]) {
				return nil // unsynced lines lost in a power failure
			}
			return fmt.Errorf("line %d: %w", i+2, err)
		}
		if c.N <= r.Changes {
			continue
		}
		if c.N != r.Changes+1 {
			return fmt.Errorf("line %d: change %d follows change %d", i+2, c.N, r.Changes)
		}
		r.apply(c)
	}
	return nil
}

// readable reports whether one of the lines is a change.
func readable(lines [][]byte) bool {
	for _, line := range lines {
		var c change
		if json.Unmarshal(line, &c) == nil && c.N > 0 {
			return true
		}
	}
	return false
}

func (r *Run) apply(c change) {
	if c.Run != nil {
		blocks := r.Blocks
		*r = *c.Run
		r.Blocks = blocks
	}
	for a, b := range c.Blocks {
		if b == nil {
			delete(r.Blocks, a)
			continue
		}
		r.Blocks[a] = b
	}
	r.Changes = c.N
}
