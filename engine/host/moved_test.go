package host

import (
	"os"
	"path/filepath"
	"testing"
)

// A live process whose directory was moved after its start is found by its original path.
func TestAMovedDirectoryIsNoticed(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	old, now := filepath.Join(root, "old"), filepath.Join(root, "new")
	if err := os.Mkdir(old, 0o700); err != nil {
		t.Fatal(err)
	}
	p := sleeper(t, old)
	recordOf(t, p, old, func(r *record) { r.Dir = old })
	if from := Moved(t.Context(), old, nil); from != "" {
		t.Errorf("nothing was moved, and %q is said to be where it was", from)
	}
	if err := os.Rename(old, now); err != nil {
		t.Fatal(err)
	}
	if from := Moved(t.Context(), now, nil); from != old {
		t.Errorf("moved from %q, want %q", from, old)
	}
	if err := os.Symlink(now, old); err != nil { // the paths that the process has are valid again
		t.Fatal(err)
	}
	if from := Moved(t.Context(), now, nil); from != "" {
		t.Errorf("its paths are good, and it is said to have been moved from %q", from)
	}
}

func TestADeadProcessIsNotMoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	recordOf(t, sleeper(t, dir), dir, func(r *record) { r.Dir, r.Process.Start = "/nowhere", r.Process.Start+1 })
	if from := Moved(t.Context(), dir, nil); from != "" {
		t.Errorf("a process that has gone is said to have been moved from %q", from)
	}
}
