package session

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/recipe-rl/recipe/engine/state"
)

// Offline runs of W&B that were not passed on outlive the run, and what the trackers know of the run does not.
func TestUnsyncedRunsAreKept(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), ".recipe", "r")
	write := func(name string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	left := write("tracking/wandb.a/files/wandb/offline-run-1/run-1.wandb")
	gone := []string{
		write("tracking/wandb.a/offset.json"), write("tracking/tensorboard.t/files/events"), write("run.json"),
		write("tracking/wandb.b/files/wandb/offline-run-2/run-2.wandb"),
		write("tracking/wandb.b/files/wandb/offline-run-2/run-2.wandb.synced"),
	}
	var out Destroyed
	if err := forget(state.Dir(dir), true, &out); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); err != nil || len(out.Unsynced) != 1 || out.Unsynced[0] != filepath.Dir(left) {
		t.Errorf("kept %q, %v; want %s", out.Unsynced, err, filepath.Dir(left))
	}
	for _, path := range gone {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is still there", path)
		}
	}
	if err := os.Rename(left, left+".synced"); err != nil {
		t.Fatal(err)
	}
	out = Destroyed{}
	if err := forget(state.Dir(dir), true, &out); err != nil || len(out.Unsynced) > 0 {
		t.Errorf("%q, %v", out.Unsynced, err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the run directory is still there")
	}
}
