package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
)

// readTries bounds how often a record is read again because an engine replaced it meanwhile.
const readTries = 20

// Read returns the record in dir, or a new, empty run when there is none. An engine may write meanwhile.
func Read(dir Dir) (*Run, error) {
	for try := 1; ; try++ {
		r, again, err := readOnce(dir)
		if !again || try == readTries {
			return r, err
		}
	}
}

// readOnce reads snapshot and journal. again says that the snapshot was replaced between the two.
func readOnce(dir Dir) (r *Run, again bool, err error) {
	before, err := os.Stat(dir.file())
	if errors.Is(err, os.ErrNotExist) {
		return &Run{Format: FormatVersion, Status: New, Blocks: map[addr.Block]*Block{}}, false, nil
	}
	if errors.Is(err, syscall.ENOTDIR) {
		return nil, false, noFolder(dir, err)
	}
	if err != nil {
		return nil, false, fmt.Errorf("read the run's record: %w", forbidden(dir, err))
	}
	snapshot, err := dir.readFile("run.json", maxFile)
	if err != nil {
		return nil, errors.Is(err, os.ErrNotExist), fmt.Errorf("read the run's record: %w", err)
	}
	if r, err = parse(dir, snapshot); err != nil {
		return nil, false, err
	}
	journal, err := dir.readFile("run.journal", maxFile)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, false, fmt.Errorf("read the run's record: %w", err)
	}
	if len(journal) > 0 {
		err = replay(r, journal)
	} else {
		err = nil
	}
	if after, serr := os.Stat(dir.file()); serr != nil || !os.SameFile(before, after) {
		again = true
	}
	var newer newerError
	if errors.As(err, &newer) {
		return nil, again, fmt.Errorf("the run's record %s %w", dir.journal(), newer)
	}
	if err != nil {
		return nil, again, damaged(dir, dir.journal(), err)
	}
	return r, again, nil
}

// noFolder names which part of the path of a run directory is something else.
func noFolder(dir Dir, err error) error {
	path := string(dir)
	if _, missing := os.Lstat(path); missing != nil {
		path = filepath.Dir(path)
	}
	return &sdk.Error{
		Summary: fmt.Sprintf("%s is not a folder: the run directory is %s", path, dir), Err: err,
		Remedy: "move " + path + " away, or move the recipe to another folder: its run directory is created beside it",
	}
}

func parse(dir Dir, b []byte) (*Run, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	var r Run
	if err := dec.Decode(&r); err != nil {
		return nil, damaged(dir, dir.file(), err)
	}
	if r.Format < 1 || r.ID == "" {
		return nil, damaged(dir, dir.file(), errors.New("it has no format_version or no id"))
	}
	if r.Format > FormatVersion {
		return nil,
			fmt.Errorf(
				"the run's record %s has format version %d; this engine reads versions up to %d: use the newer "+
					"recipe that wrote it", dir.file(), r.Format, FormatVersion)
	}
	if r.Blocks == nil {
		r.Blocks = map[addr.Block]*Block{}
	}
	for a, blk := range r.Blocks {
		if blk == nil {
			return nil, damaged(dir, dir.file(), fmt.Errorf("block %s is null", a))
		}
		compact(blk.Config)
		compact(blk.Outputs)
	}
	return &r, nil
}

func damaged(dir Dir, file string, err error) error {
	return fmt.Errorf(
		"the run's record %s is damaged (%w). Running processes are not touched. Restore the record from a backup, or "+
			"move the folder %s away to start a new run; its checkpoints are in %s/checkpoints", file, err, dir, dir)
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
