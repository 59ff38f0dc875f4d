package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/recipe-rl/recipe/engine/lineage"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/internal/archive"
	"github.com/recipe-rl/recipe/internal/lazyregexp"
	"github.com/recipe-rl/recipe/internal/objectstore"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
)

// ForkStored is Fork from checkpoints in a store: address is that of a run there, s3://BUCKET/FOLDER/ADDRESS/RUN, of
// one of its checkpoints, or of a folder with one run. say is told what is fetched and what is damaged.
func ForkStored(ctx context.Context, address string, r *schema.Recipe, step int64,
	say func(string)) ([]lineage.Checkpoint, error) {
	to := state.DirOf(r.Dir, r.Name)
	if to.Exists() {
		return nil, existsAlready(r, to)
	}
	at, err := objectstore.Parse(address)
	if err != nil {
		return nil, err
	}
	if at, step, err = stepIn(at, step); err != nil {
		return nil, err
	}
	copies, err := archive.Copies(ctx, at)
	if err != nil {
		return nil, err
	}
	folders, err := foldersOf(at, copies)
	if err != nil {
		return nil, err
	}
	if err := to.Make(); err != nil {
		return nil, err
	}
	lock, err := state.TryLock(to, "recipe fork")
	if err != nil {
		return nil, err
	}
	defer func() { _ = lock.Unlock() }()
	var chosen []*lineage.Lineage
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		l, err := fetchNewest(ctx, folders[folder], r, to, step, say)
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, l)
	}
	return begin(to, r, chosen)
}

func existsAlready(r *schema.Recipe, to state.Dir) error {
	return fmt.Errorf("there is a run of %s already (%s): fork into a recipe with another name, or remove that run "+
		"with recipe destroy -r %s", r.File, to, r.File)
}

var stepName = lazyregexp.New(`^step[-_](\d+)`)

// stepIn takes the checkpoint's name, such as step_40, off an address.
func stepIn(at objectstore.Address, step int64) (objectstore.Address, int64, error) {
	found := stepName.FindStringSubmatch(path.Base(at.Folder))
	if found == nil {
		return at, step, nil
	}
	named, err := strconv.ParseInt(found[1], 10, 64)
	if err != nil || step != Newest && step != named {
		return at, 0, fmt.Errorf("%s names another step than --at %d", at, step)
	}
	at.Folder = strings.TrimPrefix(path.Dir(at.Folder), ".")
	return at, named, nil
}

// foldersOf are the checkpoints of one run, by the folder of their trainer.
func foldersOf(at objectstore.Address, copies []archive.Copy) (map[string][]archive.Copy, error) {
	folders, runs, seen := map[string][]archive.Copy{}, map[string]bool{}, ""
	for _, c := range copies {
		if len(folders[c.Folder]) == 0 {
			seen += "\n  " + strings.TrimSuffix(at.String()+"/"+c.Folder, "/.")
		}
		folders[c.Folder] = append(folders[c.Folder], c)
		if c.Wrong == nil {
			runs[c.Run] = true
		}
	}
	switch {
	case len(copies) == 0:
		return nil, fmt.Errorf("%s: %w", at, ErrNoCheckpoint)
	case len(runs) > 1:
		return nil, fmt.Errorf("%s has checkpoints of %d runs; name one of%s", at, len(runs), seen)
	}
	return folders, nil
}

// fetchNewest brings the newest whole checkpoint of a folder, or that of a step, and returns its lineage.
func fetchNewest(ctx context.Context, copies []archive.Copy, r *schema.Recipe, to state.Dir, step int64,
	say func(string)) (*lineage.Lineage, error) {
	var damage []error
	steps := map[int64]bool{}
	for _, c := range slices.Backward(copies) {
		steps[c.Step] = true
		if step != Newest && c.Step != step {
			continue
		}
		l, err := fetchStored(ctx, c, r, to, say)
		if err == nil || !errors.Is(err, objectstore.ErrDamaged) {
			return l, err
		}
		say(err.Error())
		damage = append(damage, err)
	}
	if len(damage) > 0 {
		return nil, fmt.Errorf("no such checkpoint in the store is whole: %w", errors.Join(damage...))
	}
	return nil, fmt.Errorf("the run in the store has no checkpoint of step %d; it has checkpoints of steps %v", step,
		slices.Sorted(maps.Keys(steps)))
}

// fetchStored brings one checkpoint, and writes its lineage beside it.
func fetchStored(ctx context.Context, c archive.Copy, r *schema.Recipe, to state.Dir,
	say func(string)) (*lineage.Lineage, error) {
	if c.Wrong != nil {
		return nil, c.Wrong
	}
	address, err := addr.Parse(c.Address)
	if err != nil {
		return nil, fmt.Errorf("the checkpoint of step %d in the store: %w", c.Step, err)
	}
	if r.Lookup(address) == nil {
		return nil, fmt.Errorf("%s does not declare %s, whose checkpoint is to be continued: keep its name in the fork",
			r.File, address)
	}
	if len(c.Lineage) == 0 {
		return nil, fmt.Errorf("the checkpoint of step %d in the store has no lineage, because an older version wrote it: "+
			"fetch its folder by a tool of the store, and name it as model, which takes the weights alone", c.Step)
	}
	var l lineage.Lineage
	if err := json.Unmarshal(c.Lineage, &l); err != nil {
		return nil, fmt.Errorf("read the lineage of step %d in the store: %w", c.Step, err)
	}
	if err := makeWay(to, address, l.Run.ID); err != nil {
		return nil, err
	}
	say(fmt.Sprintf("Fetches the checkpoint of step %d of %s: %.1f MB", c.Step, address, float64(c.Size())/1e6))
	dir, err := filepath.Abs(to.Checkpoints(address))
	if err != nil {
		return nil, err
	}
	at, err := c.Fetch(ctx, dir)
	if err != nil {
		return nil, err
	}
	l.Checkpoint = &lineage.Checkpoint{Address: address, Path: at, Step: c.Step, Version: c.Version, Written: c.Written}
	return &l, l.WriteBeside(*l.Checkpoint)
}
