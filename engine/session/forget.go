package session

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/engine/tracking"
	"github.com/recipe-rl/recipe/sdk"
)

const checkpointsDir, trackingDir = "checkpoints", "tracking"

// Removable checks, before anything is ended, that the run directory can be removed, with or without its checkpoints.
// The error names the folders that cannot.
func Removable(dir state.Dir, checkpoints bool) error {
	var stuck []string
	writable := func(path string) {
		err := unix.Access(path, unix.W_OK|unix.X_OK)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // the run goes on: it removes weights that are not needed any more
			stuck = append(stuck, fmt.Sprintf("%s: %v", path, err))
		}
	}
	kept := filepath.Join(string(dir), checkpointsDir)
	keeps := !checkpoints && holdsFiles(kept)
	if !keeps {
		writable(filepath.Dir(string(dir)))
	}
	err := filepath.WalkDir(string(dir), func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			stuck = append(stuck, err.Error())
			return nil
		case !d.IsDir():
			return nil
		case keeps && path == kept:
			return filepath.SkipDir
		}
		writable(path)
		return nil
	})
	if err != nil {
		return fmt.Errorf("check the run directory: %w", err)
	}
	if len(stuck) == 0 {
		return nil
	}
	const most = 5
	if more := len(stuck) - most; more > 0 {
		stuck = append(stuck[:most], fmt.Sprintf("and %d more", more))
	}
	return &sdk.Error{
		Summary: "the run cannot be removed, so nothing was ended or removed", Detail: strings.Join(stuck, "\n"),
		Remedy: "make these folders writable, or run it as their owner; recipe stop ends the run and keeps " +
			"all files",
	}
}

// forget removes a run directory, with or without its checkpoints. The record is removed last, so that a failed removal
// can be repeated.
func forget(dir state.Dir, checkpoints bool, out *Destroyed) error {
	entries, err := os.ReadDir(string(dir))
	if err != nil {
		return fmt.Errorf("remove the run: %w", err)
	}
	last := map[string]int{"key": 1, "place.json": 2, "run.journal": 3, "run.json": 4}
	sort.SliceStable(entries, func(i, j int) bool { return last[entries[i].Name()] < last[entries[j].Name()] })
	out.Unsynced = tracking.Unsynced(dir)
	var errs []error
	for _, e := range entries {
		path := filepath.Join(string(dir), e.Name())
		if e.Name() == checkpointsDir && !checkpoints && holdsFiles(path) {
			out.Checkpoints = path
			continue
		}
		if e.Name() == trackingDir && len(out.Unsynced) > 0 {
			errs = append(errs, forgetTracking(path, out.Unsynced)...)
			continue
		}
		if last[e.Name()] > 0 && len(errs) > 0 {
			continue // the run is still there, and can be destroyed again
		}
		if err := os.RemoveAll(path); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return &sdk.Error{
			Summary: "the processes of the run were ended, but parts of its directory cannot be removed",
			Detail:  errors.Join(errs...).Error(),
			Remedy:  "fix the cause and run recipe destroy again: it removes the rest",
		}
	}
	if out.Checkpoints == "" && len(out.Unsynced) == 0 {
		if err := os.Remove(string(dir)); err != nil {
			return fmt.Errorf("remove the run: %w", err)
		}
		dir.RemoveParent()
	}
	return nil
}

// forgetTracking removes the folders of trackers, but for the files of those with runs that are kept: how far they are
// belongs to the run that is removed.
func forgetTracking(dir string, kept []string) (errs []error) {
	trackers, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, tracker := range trackers {
		inside, _ := filepath.Glob(filepath.Join(tracker, "*"))
		for _, path := range inside {
			holds := func(run string) bool { return strings.HasPrefix(run, path+string(filepath.Separator)) }
			if slices.ContainsFunc(kept, holds) {
				continue
			}
			if err := os.RemoveAll(path); err != nil {
				errs = append(errs, err)
			}
		}
		_ = os.Remove(tracker) // when it is empty
	}
	return errs
}

func holdsFiles(dir string) bool {
	found := false
	_ = filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			found = true
			return filepath.SkipAll
		}
		return nil
	})
	return found
}
