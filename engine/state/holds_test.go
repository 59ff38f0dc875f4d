package state_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/recipe-rl/recipe/engine/state"
)

func TestWhatARunDirectoryHolds(t *testing.T) {
	t.Parallel()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	top, outside := filepath.Join(base, "run"), filepath.Join(base, "run-other")
	inside := filepath.Join(top, "blocks", "weights")
	if err := errors.Join(os.MkdirAll(inside, 0o700), os.MkdirAll(outside, 0o700),
		os.Symlink(outside, filepath.Join(top, "away")), os.Symlink(top, filepath.Join(base, "alias"))); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		inside:                              true,
		filepath.Join(inside, "not-there"):  true,
		filepath.Join(base, "alias/blocks"): true,
		outside:                             false,
		filepath.Join(top, "away"):          false,
		top + "/../run-other":               false,
		filepath.Join(outside, "not-there"): false,
		"blocks/weights":                    false,
		"/":                                 false,
	} {
		if got := state.Dir(top).Holds(path); got != want {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
}
