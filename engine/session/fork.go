package session

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/recipe-rl/recipe/engine/lineage"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
)

// Newest is the step of Fork that means the newest checkpoint.
const Newest = -1

// Fork makes a new run of recipe r that continues the checkpoints that the run in from has of a step, and returns what
// it continues. Nothing of the old run changes, and nothing is started.
func Fork(from state.Dir, r *schema.Recipe, step int64) ([]lineage.Checkpoint, error) {
	to := state.DirOf(r.Dir, r.Name)
	if same, err := sameFolder(from, to); err != nil || same {
		return nil, cmp.Or(err, fmt.Errorf("the run of %s would be %s, the run that is to be forked: give it another name, "+
			"with name in its recipe block", r.File, to))
	}
	if to.Exists() {
		return nil, existsAlready(r, to)
	}
	chosen, err := CheckpointsAt(from, step)
	if err != nil {
		return nil, err
	}
	for _, l := range chosen {
		if r.Lookup(l.Checkpoint.Address) == nil {
			return nil, fmt.Errorf("%s does not declare %s, whose checkpoint is to be continued: keep its name in the fork",
				r.File, l.Checkpoint.Address)
		}
	}
	if err := to.Make(); err != nil {
		return nil, err
	}
	lock, err := state.TryLock(to, "recipe fork")
	if err != nil {
		return nil, err
	}
	defer func() { _ = lock.Unlock() }()
	for _, l := range chosen {
		c := l.Checkpoint
		if err := makeWay(to, c.Address, l.Run.ID); err != nil {
			return nil, err
		}
		dir, err := filepath.Abs(to.Checkpoints(c.Address))
		if err != nil {
			return nil, err
		}
		path := filepath.Join(dir, filepath.Base(c.Path))
		if err := errors.Join(share(c.Path, path), share(lineage.Beside(c.Path), lineage.Beside(path))); err != nil {
			return nil, fmt.Errorf("take over the checkpoint %s: %w", c.Path, err)
		}
		c.Path = path
	}
	return begin(to, r, chosen)
}

// sameFolder reports whether two run directories are one, which nobody shall remove to fork from it.
func sameFolder(from, to state.Dir) (bool, error) {
	one, err := filepath.Abs(string(from))
	other, failed := filepath.Abs(string(to))
	return one == other, cmp.Or(err, failed)
}

// makeWay sets aside what a run of the same name, which was removed, has left of a trainer's checkpoints: the fork's
// trainer would go on from the newest of them. Those of the run that is forked are of an attempt that did not end.
func makeWay(to state.Dir, address addr.Block, forked string) error {
	left, err := lineage.Checkpoints(filepath.Dir(to.Checkpoints(address)))
	if err != nil {
		return err
	}
	for _, l := range left {
		if filepath.Dir(l.Checkpoint.Path) == to.Checkpoints(address) && l.Run.ID != forked {
			_, err := to.SetAside(address, time.Now())
			return err
		}
	}
	return nil
}

// begin writes the record of a fork: its trainers have stopped at their checkpoints.
func begin(to state.Dir, r *schema.Recipe, chosen []*lineage.Lineage) ([]lineage.Checkpoint, error) {
	store, err := state.OpenStore(to, nil)
	if err != nil {
		return nil, err
	}
	var continued []lineage.Checkpoint
	err = store.Rewrite(func(rec *state.Run) {
		rec.Recipe, rec.File, rec.Status = r.Name, r.File, state.Stopped
		for _, l := range chosen {
			c := *l.Checkpoint
			was := l.Blocks[c.Address]
			rec.Blocks[c.Address] = &state.Block{Plugin: was.Version, Schema: was.Schema, Config: was.Config,
				Intent: state.IntentDone, Phase: string(sdk.Stopped), Attempt: 1, Step: c.Step,
				Checkpoint: &state.Checkpoint{Path: c.Path, Step: c.Step, Version: c.Version}}
			rec.Policy.Version = max(rec.Policy.Version, c.Version)
			continued = append(continued, c)
		}
	})
	id := store.ID()
	if err = cmp.Or(err, store.Close()); err != nil {
		return nil, err
	}
	parent := chosen[0]
	l := lineage.Lineage{FormatVersion: lineage.FormatVersion, Blocks: map[addr.Block]lineage.Block{},
		Run: lineage.Run{ID: id, Recipe: r.Name, File: r.File}, Machine: parent.Machine,
		Parent: &lineage.Parent{Run: parent.Run.ID, Recipe: parent.Run.Recipe, Digest: parent.Run.Digest,
			Address: parent.Checkpoint.Address, Step: parent.Checkpoint.Step}}
	if err := l.Write(filepath.Join(string(to), lineage.FileName)); err != nil {
		return nil, err
	}
	return continued, to.Settle()
}

// ErrNoCheckpoint means that a run has no checkpoint at all.
var ErrNoCheckpoint = errors.New("it has no checkpoint")

// CheckpointsAt finds the checkpoint of each trainer at a step; of several of one step the one that was written last.
// Archived checkpoints are ignored: they belong to a trainer that was replaced.
func CheckpointsAt(from state.Dir, step int64) ([]*lineage.Lineage, error) {
	all, err := lineage.Checkpoints(filepath.Join(string(from), "checkpoints"))
	if err != nil {
		return nil, err
	}
	found, steps := map[addr.Block]*lineage.Lineage{}, map[int64]bool{}
	for _, l := range all {
		c := l.Checkpoint
		steps[c.Step] = true
		best := found[c.Address]
		current := filepath.Dir(c.Path) == from.Checkpoints(c.Address)
		if step == Newest && current && (best == nil || c.Step > best.Checkpoint.Step) ||
			c.Step == step && (best == nil || c.Written.After(best.Checkpoint.Written)) {
			found[c.Address] = l
		}
	}
	if len(found) == 0 && (len(steps) == 0 || step == Newest) {
		return nil, fmt.Errorf("the run in %s: %w", from, ErrNoCheckpoint)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("the run in %s has no checkpoint of step %d; it has checkpoints of steps %v", from, step,
			slices.Sorted(maps.Keys(steps)))
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *lineage.Lineage) int {
		return addr.Compare(a.Checkpoint.Address, b.Checkpoint.Address)
	}), nil
}

// share makes a file or folder available at another path, without a second copy where the file system can: files of a
// checkpoint are never changed, only removed. Someone else may have made the run directory, so it takes only regular
// files and links between them: a link out of the checkpoint would make a trainer load, or archive, any file of this
// user.
func share(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := within(from, path, d.Type()); err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if d.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
			return err
		}
		if err := os.Link(path, target); err == nil || errors.Is(err, fs.ErrExist) {
			return nil
		}
		return duplicate(path, target)
	})
}

// CheckFiles returns an error for a checkpoint that holds, or is, anything but regular files and links between them.
func CheckFiles(checkpoint string) error {
	return filepath.WalkDir(checkpoint, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return within(checkpoint, path, d.Type())
	})
}

// within returns an error for what is neither a file or folder of a checkpoint nor a link to one.
func within(checkpoint, path string, mode fs.FileMode) error {
	if mode.IsRegular() || mode.IsDir() {
		return nil
	}
	if mode.Type() == fs.ModeSymlink && path != checkpoint {
		target, err := filepath.EvalSymlinks(path)
		if err != nil {
			return err
		}
		root, err := filepath.EvalSymlinks(checkpoint)
		if err != nil {
			return err
		}
		text, err := os.Readlink(path)
		if err != nil {
			return err
		}
		if rel, err := filepath.Rel(root, target); err == nil && filepath.IsLocal(rel) && !filepath.IsAbs(text) {
			return nil
		}
	}
	return &sdk.Error{
		Summary: fmt.Sprintf("%s is no file of the checkpoint: its type is %s, expected regular files and links between them",
			path, mode.Type()),
		Remedy: "replace it by the file that is meant, if you know where it came from"}
}

func duplicate(from, to string) error {
	in, _, err := regular.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}
