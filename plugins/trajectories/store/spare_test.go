package store

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/internal/disk/disktest"
)

// emptied is a store whose first files held nothing but groups that have ended, and are kept to be written again.
func emptied(t *testing.T, dir string) *Disk {
	t.Helper()
	d := openSmall(t, dir)
	scan(t, d)
	var ids []uint64
	for id := uint64(1000); id < 1100; id++ { // three files
		commit(t, d, Change{Put: []Entry{entry(id, 2000)}})
		ids = append(ids, id)
	}
	commit(t, d, Change{End: ids})
	pause(d)
	if err := d.checkpoint(); err != nil {
		t.Fatal(err)
	}
	if len(d.bodies.spare) != maxSpare {
		t.Fatalf("%d files are kept to be written again, want %d", len(d.bodies.spare), maxSpare)
	}
	return d
}

// What a file held before it was written again must not come back, though its frames lie where frames are looked for.
func TestAFileIsWrittenAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		groups int
		then   func(*testing.T, *Disk)
	}{
		"a kill after its new seed": {0, func(t *testing.T, d *Disk) {
			if _, err := d.bodies.spare[0].file.WriteAt(newHead(), 0); err != nil {
				t.Fatal(err)
			}
		}},
		"a kill after its new name": {0, func(t *testing.T, d *Disk) {
			if s := d.bodies.again(); s == nil {
				t.Fatal("no file is written again")
			}
		}},
		"a kill after one frame": {1, nil},
		"a kill after two files": {70, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			d := emptied(t, dir)
			known := d.bodies.spare[len(d.bodies.spare)-1].file
			d.bodies.current = nil // the next group begins a file
			want := map[uint64]bool{}
			for id := uint64(2000); id < 2000+uint64(c.groups); id++ {
				if _, err := appendFrame(d, Change{Put: []Entry{entry(id, 2000)}}); err != nil {
					t.Fatal(err)
				}
				d.apply(d.appended)
				want[id] = true
			}
			if c.groups == 1 && d.bodies.current.file != known {
				t.Error("a new file was made although one was kept")
			}
			if c.then != nil {
				c.then(t, d)
			}
			_ = d.bodies.close()
			_ = d.db.Close()
			d = openSmall(t, dir)
			if got := slices.Sorted(maps.Keys(scan(t, d).groups)); !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
				t.Errorf("groups %v are there, want %v", got, slices.Sorted(maps.Keys(want)))
			}
			holds(t, d, slices.Collect(maps.Keys(want))...)
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A file that somebody else has put where the next one would be is left alone.
func TestAFileOfSomebodyElseIsNotReplaced(t *testing.T) {
	t.Parallel()
	d := emptied(t, t.TempDir())
	path := d.bodies.name(d.bodies.next)
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.bodies.current = nil
	if err := d.bodies.room(); !errors.Is(err, fs.ErrExist) {
		t.Errorf("the next file was begun with %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "mine" {
		t.Errorf("it holds %.40q now, %v", text, err)
	}
	_ = d.bodies.close()
	_ = d.db.Close()
}

// Nothing is kept for later when a store is closed, or where the disk is full.
func TestFilesAreNotKeptForNothing(t *testing.T) {
	t.Parallel()
	t.Run("closed", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		d := openSmall(t, dir)
		scan(t, d)
		for id := uint64(1); id <= 100; id++ { // three files
			commit(t, d, Change{Put: []Entry{entry(id, 2000)}})
			commit(t, d, Change{End: []uint64{id}})
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if _, files := sizeOf(t, dir); files != 1 {
			t.Errorf("%d files are left, want the last one", files)
		}
	})
	t.Run("full", func(t *testing.T) {
		t.Parallel()
		dir := disktest.Small(t, 24<<20)
		d, err := OpenDisk(dir+"/store", DiskOptions{Always: true, SegmentBytes: 2 << 20, Wait: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		scan(t, d)
		var ids []uint64
		for id := uint64(1); id <= 50; id++ { // 5 MB
			commit(t, d, Change{Put: []Entry{entry(id, 100_000)}})
			ids = append(ids, id)
		}
		commit(t, d, Change{End: ids})
		for id := uint64(51); id <= 80; id++ { // until a file is full, so that what has ended is noticed
			commit(t, d, Change{Put: []Entry{entry(id, 100_000)}})
			commit(t, d, Change{End: []uint64{id}})
		}
		disktest.Fill(t, dir)
		commit(t, d, Change{Put: []Entry{entry(100, 3_000_000)}}) // 2.4 MB, more than its file has
		holds(t, d, 100)
		d.crash()
	})
}

// A file that is too small or much too large to be one of the next is deleted.
func TestWhichFilesAreWrittenAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bytes int
		kept  int
	}{"full": {smallFile + smallFile/2, 1}, "one huge group": {3 * smallFile, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			d := openSmall(t, dir)
			scan(t, d)
			commit(t, d, Change{Put: []Entry{entry(1, c.bytes)}})
			commit(t, d, Change{Put: []Entry{entry(2, 10)}})
			commit(t, d, Change{End: []uint64{1}})
			pause(d)
			if err := d.checkpoint(); err != nil {
				t.Fatal(err)
			}
			if len(d.bodies.spare) != c.kept {
				t.Errorf("%d files are kept, want %d", len(d.bodies.spare), c.kept)
			}
			if _, err := os.Stat(d.bodies.name(1)); (err == nil) != (c.kept == 1) {
				t.Errorf("the file: %v", err)
			}
			_ = d.bodies.close()
			_ = d.db.Close()
		})
	}
}
