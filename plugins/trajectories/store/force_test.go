package store

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// lateFull is a file system that accepts writes and finds out at fsync that there is no room. Small writes fit. Only
// the committer calls it.
type lateFull struct {
	full, always atomic.Bool
	refused      atomic.Int64
	forced       map[string]int64
}

func (l *lateFull) sync(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if l.full.Load() && info.Size()-l.forced[f.Name()] > 50_000 || l.always.Load() {
		l.refused.Add(1)
		return syscall.ENOSPC
	}
	l.forced[f.Name()] = info.Size()
	return datasync(f)
}

func openLate(t *testing.T, dir string) (*Disk, *lateFull) {
	t.Helper()
	d, err := OpenDisk(dir, DiskOptions{Always: true, Wait: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	l := &lateFull{forced: map[string]int64{}}
	d.sync = l.sync
	scan(t, d)
	return d, l
}

// TestADiskThatIsFullWhenItIsForced: groups wait for room, changes that end groups succeed, and all is there after a
// crash.
func TestADiskThatIsFullWhenItIsForced(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]bool{"with frames before it in the file": false, "as the first of a file": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			d, l := openLate(t, dir)
			if !first {
				commit(t, d, Change{Put: []Entry{entry(1, 1000), entry(2, 1000)}})
			}
			l.full.Store(true)
			waits := d.Submit(Change{Put: []Entry{entry(3, 100_000)}})
			commit(t, d, Change{End: []uint64{1}, State: []byte(`"meanwhile"`)}) // behind the other: it has been tried
			if l.refused.Load() == 0 {
				t.Fatal("nothing was refused")
			}
			select {
			case <-waits.done:
				t.Fatalf("a group for which there is no room is answered with %v", waits.err)
			default:
			}
			l.full.Store(false)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := waits.Wait(ctx); err != nil {
				t.Fatalf("there is room again, and the group is refused: %v", err)
			}
			commit(t, d, Change{Put: []Entry{entry(4, 1000)}})
			d.crash()
			d = openDisk(t, dir)
			want := []uint64{2, 3, 4}
			if first {
				want = want[1:]
			}
			if c := scan(t, d); len(c.groups) != len(want) || string(c.State) != `"meanwhile"` {
				t.Errorf("%d groups and state %s are left, want %v", len(c.groups), c.State, want)
			}
			holds(t, d, want...)
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestADiskThatCannotEvenBeCutBack: the content of the disk is unknown, and the store says what to do.
func TestADiskThatCannotEvenBeCutBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d, l := openLate(t, dir)
	commit(t, d, Change{Put: []Entry{entry(1, 1000)}})
	l.always.Store(true)
	err := try(t, d, Change{Put: []Entry{entry(2, 1000)}})
	if err == nil || !errors.Is(err, syscall.ENOSPC) || errors.Is(err, ErrFull) ||
		!strings.Contains(err.Error(), "restart the server") {
		t.Errorf("answered with %v, want what to do", err)
	}
	l.always.Store(false)
	if err := try(t, d, Change{End: []uint64{1}}); err == nil {
		t.Error("a store that does not know what its disk holds continues")
	}
	d.crash()
	d = openDisk(t, dir)
	scan(t, d)
	holds(t, d, 1)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}
