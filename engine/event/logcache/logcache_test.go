package logcache

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"testing"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/event/eventtest"
)

// count is how many events there were.
type count struct{ n uint64 }

func (c *count) Apply(event.Event)              { c.n++ }
func (c *count) Seen() uint64                   { return c.n }
func (c *count) MarshalBinary() ([]byte, error) { return []byte(strconv.FormatUint(c.n, 10)), nil }
func (c *count) UnmarshalBinary(text []byte) (err error) {
	c.n, err = strconv.ParseUint(string(text), 10, 64)
	return err
}

var file = File{Name: "count.kept", Limit: 1000}

func empty() *count { return &count{} }

// written is a log of three files with two events each.
func written(t *testing.T) (dir string) {
	t.Helper()
	w := &eventtest.Writer{TB: t, Dir: t.TempDir()}
	for range 3 {
		w.Put(event.Event{Type: event.Notice})
		w.Put(event.Event{Type: event.Notice})
		w.Save()
	}
	return w.Dir
}

// keep reads a log, and keeps what there is to keep.
func keep(t *testing.T, dir string, file File) error {
	t.Helper()
	c, save, err := Read(t.Context(), dir, file, empty)
	if err != nil || c.n != 6 {
		t.Fatalf("%d events, expected 6 (%v)", c.n, err)
	}
	return save()
}

func TestAnotherProgramFoldsAnew(t *testing.T) {
	t.Parallel()
	dir := written(t)
	if err := keep(t, dir, file); err != nil {
		t.Fatal(err)
	}
	done, next, err := complete(dir)
	if err != nil || next != 5 {
		t.Fatalf("the newest file begins with event %d (%v)", next, err)
	}
	if c, to := recall(dir, file, thisProgram(), done, empty); c.n != 4 || to != done[1] {
		t.Errorf("%d events up to %v are kept for this program", c.n, to)
	}
	if c, _ := recall(dir, file, "another", done, empty); c.n != 0 {
		t.Error("another program takes what this one has kept")
	}
}

// All files of an image may have one time, and two programs one size.
func TestProgramsOfOneSizeAndTimeDiffer(t *testing.T) {
	t.Parallel()
	info, err := os.Stat(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	built := func(revision string) *debug.BuildInfo {
		return &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: revision}}}
	}
	if a, b := program(info, built("a")), program(info, built("b")); a == b {
		t.Errorf("programs of two revisions are both %s", a)
	}
}

func TestWhatIsNotKept(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		file File
		mode fs.FileMode
	}{
		"more than the limit":     {File{file.Name, 10}, 0o700},
		"in a folder to be read":  {file, 0o500}, // as root, too
		"in a folder not to read": {File{"no/folder.kept", 1000}, 0o700},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := written(t)
			if err := os.Chmod(dir, test.mode); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
			if err := keep(t, dir, test.file); err == nil {
				t.Error("there was no error")
			}
			if _, err := os.Stat(filepath.Join(dir, test.file.Name)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("it was written (%v)", err)
			}
		})
	}
}

// A fold that cannot be read is made anew, although the file is as it was written.
func TestAFoldThatCannotBeRead(t *testing.T) {
	t.Parallel()
	dir := written(t)
	done, _, err := complete(dir)
	if err != nil {
		t.Fatal(err)
	}
	content, err := encode(header{thisProgram(), done}, &broken{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, file.Name), content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := keep(t, dir, file); err != nil {
		t.Error(err)
	}
}

type broken struct{ count }

func (*broken) MarshalBinary() ([]byte, error) { return []byte("no number"), nil }

// TestACopyIsFoldedAnew: what is kept in a run directory that came from somewhere else may be anyone's, whatever digest
// it has.
func TestACopyIsFoldedAnew(t *testing.T) {
	t.Parallel()
	dir := written(t)
	if err := keep(t, dir, file); err != nil {
		t.Fatal(err)
	}
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries { // an archive keeps the times of its files
		info, err := e.Info()
		if err == nil {
			err = os.Chtimes(filepath.Join(copied, e.Name()), info.ModTime(), info.ModTime())
		}
		if err == nil {
			err = os.Chmod(filepath.Join(copied, e.Name()), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for where, want := range map[string]uint64{dir: 4, copied: 0} {
		done, _, err := complete(where)
		if err != nil {
			t.Fatal(err)
		}
		if c, _ := recall(where, file, thisProgram(), done, empty); c.n != want {
			t.Errorf("%d events are kept in %s, expected %d", c.n, where, want)
		}
	}
}
