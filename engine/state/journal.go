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

// The record of a run is a snapshot, run.json, and a journal of what has changed since, run.journal: a header line,
// then a line a change. A line holds whole blocks, so reading it twice does no harm. Changes are numbered without a gap
// over snapshot and journal, and a journal begins behind the snapshot that it belongs to or earlier: lines that the
// snapshot holds are passed over.

// journalVersion is the version of the journal's lines.
const journalVersion = 1

// journalBytes is the size from which on a journal is folded into a new snapshot.
const journalBytes = 1 << 20

// header is the first line of a journal.
type header struct {
	Journal int    `json:"journal"`
	Run     string `json:"run"`
	After   uint64 `json:"after"` // number of the last change in the snapshot that it was begun behind
}

// change is every other line.
type change struct {
	N      uint64                `json:"n"`
	Run    *Run                  `json:"run,omitempty"`    // everything but its blocks
	Blocks map[addr.Block]*Block `json:"blocks,omitempty"` // null: the block is gone
}

// errTorn means that a part of a line is left in the journal and cannot be cut off.
var errTorn = errors.New("a part of a line cannot be cut off the journal")

// journal is a journal that is written.
type journal struct {
	file    *os.File
	whole   int64 // bytes of whole lines
	size    int64 // bytes of changes
	retired bool  // to be closed by whoever syncs it
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

// replay applies the journal to the snapshot r.
func replay(r *Run, journal []byte) error {
	lines := bytes.SplitAfter(journal, []byte("\n"))
	var h header
	if len(lines[0]) == 0 || lines[0][len(lines[0])-1] != '\n' {
		return nil // it was just being begun
	}
	if err := json.Unmarshal(lines[0], &h); err != nil || h.Journal < 1 {
		return fmt.Errorf("its first line is no header of a journal: %.80q", lines[0])
	}
	if h.Run != r.ID {
		return nil // of another run that was here before
	}
	if h.Journal > journalVersion {
		return fmt.Errorf("it has version %d; this engine reads up to %d: use the newer recipe that wrote it",
			h.Journal, journalVersion)
	}
	if h.After > r.Changes {
		return errMoved
	}
	for i, line := range lines[1:] {
		var c change
		if len(line) == 0 || line[len(line)-1] != '\n' {
			return nil // the last one, which is just being written or was when the engine was killed
		}
		if err := json.Unmarshal(line, &c); err != nil {
			if !readable(lines[i+2:]) {
				return nil // what a machine that lost its power has left of lines that were not synced
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

// readable says whether one of the lines is a change.
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
