package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/schema/addr"
)

// OnDisk is what the disk has of a recorded checkpoint. The zero value: it is there.
type OnDisk struct {
	// Gone reports that the checkpoint is not there, or that nothing is in its folder.
	Gone bool
	// Left is the newest of the others in the folder, from which a trainer would go on; nil: there is none.
	Left *Checkpoint
}

// numbered is a name that ends with a number, and maybe an extension, as the names of checkpoints do.
var numbered = lazyregexp.New(`^(.*?)([0-9]+)(\.[A-Za-z]+)?$`)

// complete is the file that ends a checkpoint which is a folder named as those of recipe_sdk are: one without it was
// never finished.
const complete, completed = "COMPLETE", "step_"

// CheckpointOnDisk compares the recorded checkpoint of a block with the disk. That a folder cannot be read is an error,
// not a checkpoint that is gone.
func (d Dir) CheckpointOnDisk(a addr.Block, recorded *Checkpoint) (OnDisk, error) {
	if recorded == nil || recorded.Path == "" {
		return OnDisk{}, nil
	}
	there, err := whole(recorded.Path)
	if err != nil || there {
		return OnDisk{}, err
	}
	found, err := d.CheckpointsOnDisk(a, recorded)
	if err != nil {
		return OnDisk{}, err
	}
	kept := OnDisk{Gone: true}
	for step, path := range found {
		if kept.Left == nil || step > kept.Left.Step {
			kept.Left = &Checkpoint{Path: path, Step: step, Version: recorded.Version}
		}
	}
	// the run directory was moved, or its engine had not heard of newer ones
	if kept.Left != nil && kept.Left.Step >= recorded.Step {
		return OnDisk{}, nil
	}
	return kept, nil
}

// CheckpointsOnDisk are the checkpoints of a block that are named as a recorded one is, by step.
func (d Dir) CheckpointsOnDisk(a addr.Block, recorded *Checkpoint) (map[int64]string, error) {
	if recorded == nil || recorded.Path == "" {
		return nil, nil
	}
	folder := d.Checkpoints(a)
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for the checkpoints of %s: %w", a, err)
	}
	found := map[int64]string{}
	name := numbered.FindStringSubmatch(filepath.Base(recorded.Path))
	for _, e := range entries {
		parts := numbered.FindStringSubmatch(e.Name())
		if parts == nil || name == nil || parts[1] != name[1] || parts[3] != name[3] {
			continue
		}
		path := filepath.Join(folder, e.Name())
		step, err := strconv.ParseInt(parts[2], 10, 64)
		if err != nil {
			continue
		}
		if there, err := whole(path); err == nil && there {
			found[step] = path
		}
	}
	return found, nil
}

// whole reports whether a checkpoint is at a path, as far as that is seen without reading it.
func whole(path string) (bool, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look for a checkpoint: %w", err)
	case !info.IsDir():
		return info.Size() > 0, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return false, fmt.Errorf("look for a checkpoint: %w", err)
	}
	if parts := numbered.FindStringSubmatch(filepath.Base(path)); len(parts) > 1 && parts[1] == completed {
		return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == complete }), nil
	}
	return len(entries) > 0, nil
}
