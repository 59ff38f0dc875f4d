package store

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const smallFile = 64 << 10

func openSmall(t testing.TB, dir string) *Disk {
	t.Helper()
	d, err := OpenDisk(dir, DiskOptions{SegmentBytes: smallFile}) // kills are tested here, not power failures
	if err != nil {
		t.Fatal(err)
	}
	d.every = 1 << 30 // checkpoints only when a file is full
	d.bodies.reuse = true
	return d
}

func sizeOf(t testing.TB, dir string) (bytes int64, files int) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "log", "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		bytes += info.Size()
	}
	return bytes, len(names)
}

// One group of many never ends. Without moving groups, each would keep its file.
func TestSpaceFollowsWhatIsStillNeeded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openSmall(t, dir)
	scan(t, d)
	var kept []uint64
	for id := uint64(1); id <= 3000; id++ {
		commit(t, d, Change{Put: []Entry{entry(id, 2000)}})
		if id%100 == 0 {
			kept = append(kept, id)
		} else {
			commit(t, d, Change{End: []uint64{id}})
		}
	}
	bytes, files := sizeOf(t, dir)
	if most := int64(sparse*len(kept)*2100 + (2+maxSpare)*smallFile); bytes > most {
		t.Errorf("%d groups of 2 kB take %d bytes in %d files, expected at most %d", len(kept), bytes, files, most)
	}
	holds(t, d, kept...)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = openSmall(t, dir)
	c := scan(t, d)
	if len(c.groups) != len(kept) {
		t.Errorf("%d groups after opening again, expected %d", len(c.groups), len(kept))
	}
	for _, id := range kept {
		if m := c.groups[id]; m.Place != id || m.MaxVersion != int64(id) {
			t.Errorf("what is known of group %d has become %+v", id, m)
		}
	}
	holds(t, d, kept...)
	commit(t, d, Change{End: kept})
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = openSmall(t, dir)
	if bytes, files := sizeOf(t, dir); files != 0 {
		t.Errorf("all groups have ended, and %d bytes in %d files are left", bytes, files)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// Processes that end before they fill a file leave files, each with a waiting group. The next process moves it.
func TestAFileOfAnEarlierLifeIsMovedAfterTheFirstCommit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	next := uint64(0)
	var kept []uint64
	for range 5 {
		d := openSmall(t, dir)
		for range 20 {
			next++
			commit(t, d, Change{Put: []Entry{entry(next, 2000)}})
			if next%20 == 1 {
				kept = append(kept, next)
			} else {
				commit(t, d, Change{End: []uint64{next}})
			}
		}
		d.crash()
	}
	d := openSmall(t, dir)
	commit(t, d, Change{Put: []Entry{entry(1000, 100)}})
	commit(t, d, Change{}) // is answered after the previous one has been handled
	if bytes, files := sizeOf(t, dir); bytes > 20_000 {
		t.Errorf("%d groups of 2 kB take %d bytes in %d files", len(kept), bytes, files)
	}
	holds(t, d, append(kept, 1000)...)
	d.crash()
	d = openSmall(t, dir)
	if c := scan(t, d); len(c.groups) != len(kept)+1 {
		t.Errorf("%d groups, expected %d", len(c.groups), len(kept)+1)
	}
	d.crash()
}

func TestFilesThatRestartsLeaveArePutTogether(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var ids []uint64
	for id := uint64(1); id <= 2*manyFiles; id++ {
		d := openSmall(t, dir)
		commit(t, d, Change{Put: []Entry{entry(id, 100)}})
		ids = append(ids, id)
		d.crash()
	}
	d := openSmall(t, dir)
	for range 40 {
		ids = append(ids, uint64(len(ids)+1))
		commit(t, d, Change{Put: []Entry{entry(uint64(len(ids)), 2000)}})
	}
	commit(t, d, Change{})
	if _, files := sizeOf(t, dir); files > manyFiles+2 {
		t.Errorf("%d files are left, expected about %d", files, manyFiles)
	}
	holds(t, d, ids...)
	d.crash()
	d = openSmall(t, dir)
	if c := scan(t, d); len(c.groups) != len(ids) {
		t.Errorf("%d groups, expected %d", len(c.groups), len(ids))
	}
	holds(t, d, ids...)
	d.crash()
}

// A crash at any byte of a move, and after it before the index has it, loses and repeats nothing.
func TestACrashInTheMiddleOfAMove(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openSmall(t, dir)
	scan(t, d)
	for id := uint64(1); id <= 40; id++ {
		commit(t, d, Change{Put: []Entry{entry(id, 1000)}})
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = openSmall(t, dir)
	commit(t, d, Change{Place: map[uint64]uint64{7: 77}})
	commit(t, d, Change{End: []uint64{1, 2, 3}})
	commit(t, d, Change{Put: []Entry{entry(50, 200)}})
	pause(d) // from here on the test is the only writer
	if err := d.checkpoint(); err != nil {
		t.Fatal(err)
	}
	number, before := d.bodies.end()
	old := d.bodies.segments[number-1]
	if old == nil || old.live != 37 {
		t.Fatalf("the file to move is %+v", old)
	}
	if err := d.forward(old); err != nil {
		t.Fatal(err)
	}
	after := d.bodies.current.size
	after2, err := appendFrame(d, Change{End: []uint64{9, 50}, Place: map[uint64]uint64{8: 88}})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.db.Close(); err != nil {
		t.Fatal(err)
	}
	_ = d.bodies.close()
	name := fmt.Sprintf("%08d.log", number)
	whole, err := os.ReadFile(filepath.Join(dir, "log", name))
	if err != nil {
		t.Fatal(err)
	}
	cuts := []int64{before, before + 1, before + frameHead, after - 1, after, after2 - 1, after2}
	for at := before; at < after; at += 2711 {
		cuts = append(cuts, at)
	}
	for _, cut := range cuts {
		torn := t.TempDir()
		if err := os.CopyFS(torn, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(torn, "log", name), whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time from the state that the first left
			d := openSmall(t, torn)
			c := scan(t, d)
			want := 38
			if cut == after2 {
				want = 36
			}
			if len(c.groups) != want || c.groups[7].Place != 77 {
				t.Fatalf("cut at %d of %d..%d: %d groups, expected %d; place %d", cut, before, after, len(c.groups),
					want, c.groups[7].Place)
			}
			for id := range c.groups {
				holds(t, d, id)
			}
			_, files := sizeOf(t, torn)
			if moved := cut >= after; moved && files != 1 || !moved && files != 2 {
				t.Errorf("cut at %d of %d..%d: %d files", cut, before, after, files)
			}
			d.crash()
		}
	}
}

// pause ends the committer and leaves the rest open.
func pause(d *Disk) {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.poke()
	<-d.done
}

func appendFrame(d *Disk, c Change) (end int64, err error) {
	err = d.append([]submission{{c, newTicket()}})
	return d.bodies.current.size, err
}

// Readers must never get an error about a damaged group because it is being moved.
func TestReadersDoNotNoticeAMove(t *testing.T) {
	t.Parallel()
	d := openSmall(t, t.TempDir())
	scan(t, d)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	commit(t, d, Change{Put: []Entry{entry(1, 500), entry(2, 500)}})
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					holds(t, d, 1, 2)
				}
			}
		})
	}
	for id := uint64(3); id < 1500; id++ {
		commit(t, d, Change{Put: []Entry{entry(id, 2000)}})
		commit(t, d, Change{End: []uint64{id}})
	}
	close(stop)
	wg.Wait()
	if p, err := d.where(1); err != nil || p.Segment < 3 {
		t.Errorf("the group was not moved: %+v, %v", p, err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// A damaged group keeps its file, which does not stop the others from being moved.
func TestADamagedGroupIsNotMoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openSmall(t, dir)
	scan(t, d)
	fill := func(from uint64) {
		for id := from; id < from+40; id++ {
			commit(t, d, Change{Put: []Entry{entry(id, 2000)}})
			if id != from {
				commit(t, d, Change{End: []uint64{id}})
			}
		}
	}
	commit(t, d, Change{Put: []Entry{entry(1, 500)}})
	file := logs(t, dir)[0]
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text[strings.Index(string(text), string(body(1, 50)))+25] ^= 1
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for from := uint64(100); from < 1000; from += 100 {
		fill(from)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the file of the damaged group: %v", err)
	}
	if _, files := sizeOf(t, dir); files > 4+maxSpare {
		t.Errorf("%d files are left", files)
	}
	holds(t, d, 100, 900)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// The store compared with a map, with small files, random ends, crashes and restarts.
func TestMovesAgainstAModel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(3, 4))
	model := map[uint64]uint64{} // id → place
	next := uint64(0)
	for range 12 {
		d := openSmall(t, dir)
		c := scan(t, d)
		if len(c.groups) != len(model) {
			t.Fatalf("%d groups, expected %d", len(c.groups), len(model))
		}
		for id, place := range model {
			if c.groups[id].Place != place {
				t.Fatalf("group %d is at place %d, expected %d", id, c.groups[id].Place, place)
			}
			holds(t, d, id)
		}
		for range 150 {
			change := Change{Place: map[uint64]uint64{}}
			for range rng.IntN(4) {
				next++
				change.Put = append(change.Put, entry(next, 1+rng.IntN(3000)))
			}
			for id := range model {
				switch rng.IntN(20) {
				case 0, 1, 2:
					change.End = append(change.End, id)
					delete(model, id)
				case 3:
					next++
					change.Place[id], model[id] = next, next
				}
			}
			for _, e := range change.Put {
				model[e.ID] = e.ID
			}
			commit(t, d, change)
		}
		if rng.IntN(2) == 0 {
			d.crash()
		} else if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOldKeysAreForgotten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openSmall(t, dir)
	scan(t, d)
	var keys []Key
	for i := range KeepKeys + 100 {
		keys = append(keys, Key{Name: binary.BigEndian.AppendUint32(nil, uint32(i))})
		if len(keys) == 1000 || i == KeepKeys+99 {
			commit(t, d, Change{Keys: keys})
			keys = nil
		}
	}
	for range 2 {
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		d = openSmall(t, dir)
		c := scan(t, d)
		if len(c.Keys) != KeepKeys || binary.BigEndian.Uint32(c.Keys[0].Name) != 100 || !slices.IsSortedFunc(c.Keys,
			func(a, b Key) int { return slices.Compare(a.Name, b.Name) }) {
			t.Errorf("%d keys, the first is %v", len(c.Keys), c.Keys[0])
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}
