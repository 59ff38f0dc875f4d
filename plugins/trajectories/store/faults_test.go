package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

func openDisk(t *testing.T, dir string) *Disk {
	t.Helper()
	d, err := OpenDisk(dir, DiskOptions{Always: true})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// crash leaves the files as kill -9 would: without a last checkpoint.
func (d *Disk) crash() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.poke()
	<-d.done
	_ = d.bodies.close()
	_ = d.db.Close()
}

func logs(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "log", "*.log"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no log files in %s: %v", dir, err)
	}
	slices.Sort(files)
	return files
}

func TestATornLastRecordLosesNothingBeforeIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDisk(t, dir)
	scan(t, d)
	var ends []int64 // of the log after each commit
	for id := uint64(1); id <= 5; id++ {
		commit(t, d, Change{Put: []Entry{entry(id, 200)}, State: fmt.Appendf(nil, "%d", id)})
		ends = append(ends, d.bodies.current.size)
	}
	d.crash()
	file := logs(t, dir)[0]
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for size := ends[2]; size <= ends[4]; size += 61 {
		torn := t.TempDir()
		if err := os.CopyFS(torn, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		// The results of a power failure: the file is shorter, or long enough but with other bytes in it.
		for _, tail := range [][]byte{nil, make([]byte, 4096), whole[:300]} {
			if err := os.WriteFile(logs(t, torn)[0], append(slices.Clone(whole[:size]), tail...), 0o600); err != nil {
				t.Fatal(err)
			}
			must := 3
			if size >= ends[3] {
				must = 4
			}
			if size >= ends[4] {
				must = 5
			}
			d := openDisk(t, torn)
			c := scan(t, d)
			for id := range must {
				holds(t, d, uint64(id+1))
			}
			if len(c.groups) != must || string(c.State) != fmt.Sprint(must) {
				t.Fatalf("cut at %d of %v: %v groups and state %s, expected the first %d", size, ends,
					slices.Sorted(maps.Keys(c.groups)), c.State, must)
			}
			commit(t, d, Change{Put: []Entry{entry(9, 50)}})
			d.crash()
			d = openDisk(t, torn)
			holds(t, d, 1, 9)
			d.crash()
			if err := os.RemoveAll(torn); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(torn, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestACrashBetweenCheckpointsRepeatsNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := func() *Disk {
		d := openDisk(t, dir)
		d.every = 7
		return d
	}
	d := open()
	scan(t, d)
	live := map[uint64]bool{}
	next := uint64(0)
	for round := range 6 {
		for range 20 {
			next++
			commit(t, d, Change{Put: []Entry{entry(next, 300)}})
			live[next] = true
			if next%3 == 0 {
				commit(t, d, Change{End: []uint64{next - 1}})
				delete(live, next-1)
			}
		}
		if round%2 == 0 {
			d.crash()
		} else if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		d = open()
		if c := scan(t, d); !slices.Equal(slices.Sorted(maps.Keys(c.groups)), slices.Sorted(maps.Keys(live))) {
			t.Fatalf("round %d: %v, expected %v", round, slices.Sorted(maps.Keys(c.groups)), slices.Sorted(maps.Keys(live)))
		}
	}
	var all []uint64
	for id := range live {
		all = append(all, id)
	}
	commit(t, d, Change{End: all})
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = openDisk(t, dir)
	if files, _ := filepath.Glob(filepath.Join(dir, "log", "*.log")); len(files) != 0 {
		t.Errorf("all groups have ended and %v are left", files)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// A process that ends before it has written anything leaves an index that points to a file which does not exist, and no
// files at all when no group waits. The next process must write after that place, or the one after it would skip its
// groups.
func TestALifeWithoutACommitLosesNothingOfTheNext(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Disk){
		"killed":  (*Disk).crash,
		"stopped": func(d *Disk) { _ = d.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			d := openDisk(t, dir)
			commit(t, d, Change{Put: []Entry{entry(1, 200)}})
			commit(t, d, Change{End: []uint64{1}, State: []byte("1")})
			end(d)
			for id := uint64(2); id < 6; id++ {
				for range 2 { // processes that write nothing
					end(openDisk(t, dir))
				}
				d = openDisk(t, dir)
				scan(t, d)
				commit(t, d, Change{Put: []Entry{entry(id, 200)}, State: fmt.Appendf(nil, "%d", id)})
				end(d)
				d = openDisk(t, dir)
				holds(t, d, id)
				if c := scan(t, d); string(c.State) != fmt.Sprint(id) {
					t.Errorf("the state is %s, want %d", c.State, id)
				}
				commit(t, d, Change{End: []uint64{id}})
				end(d)
			}
		})
	}
}

func TestForeignFilesAreLeftAloneOrNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDisk(t, dir)
	scan(t, d)
	commit(t, d, Change{Put: []Entry{entry(1, 100)}})
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	foreign := map[string]string{"notes.txt": "hello", "log/00000777.log": "not a log of ours, though it is called so",
		"log/x.log": "", "log/readme": "x"}
	for name, text := range foreign {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d = openDisk(t, dir)
	scan(t, d)
	holds(t, d, 1)
	commit(t, d, Change{Put: []Entry{entry(2, 100)}, End: []uint64{1}})
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for name, text := range foreign {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != text {
			t.Errorf("%s became %q, %v", name, got, err)
		}
	}
	for _, text := range []string{"this is no database", strings.Repeat("x", 1<<16)} {
		other := t.TempDir()
		if err := os.WriteFile(filepath.Join(other, "index.db"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenDisk(other, DiskOptions{Always: true}); err == nil || !strings.Contains(err.Error(),
			"index.db is not the index of a trajectory store") || !strings.Contains(err.Error(), "move it away") {
			t.Errorf("an index of something else: %v", err)
		}
	}
}

// A store that someone else has made is not waited for, and leads to no file outside of it.
func TestAnIndexIsARegularFile(t *testing.T) {
	t.Parallel()
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.WriteFile(elsewhere, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, put := range map[string]func(index string) error{
		"pipe": func(index string) error { return syscall.Mkfifo(index, 0o600) },
		"link": func(index string) error { return os.Symlink(elsewhere, index) },
	} {
		dir := t.TempDir()
		if err := put(filepath.Join(dir, "index.db")); err != nil {
			t.Fatal(err)
		}
		opened := make(chan error, 1)
		go func() { _, err := OpenDisk(dir, DiskOptions{}); opened <- err }()
		select {
		case err := <-opened:
			if err == nil {
				t.Errorf("%s: the store was opened", name)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s: the store is still being opened", name)
		}
	}
	if info, err := os.Stat(elsewhere); err != nil || info.Size() > 0 {
		t.Errorf("the file outside of the store was changed: %v", err)
	}
}

func TestTwoServersCannotShareAFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDisk(t, dir)
	defer func() { _ = d.Close() }()
	if _, err := OpenDisk(dir, DiskOptions{Always: true}); err == nil || !strings.Contains(err.Error(),
		"in use by another process") {
		t.Errorf("the second gets %v", err)
	}
}

func TestDamagedBodiesAreNoticed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDisk(t, dir)
	scan(t, d)
	commit(t, d, Change{Put: []Entry{entry(1, 1000), entry(2, 1000)}})
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	file := logs(t, dir)[0]
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(text), string(body(1, 50)))
	text[at+25] ^= 1
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	d = openDisk(t, dir)
	defer func() { _ = d.Close() }()
	scan(t, d)
	if _, err := d.Body(t.Context(), 1, nil); !errors.Is(err, ErrCorrupt) ||
		!strings.Contains(err.Error(), "00000001.log") {
		t.Errorf("a changed body: %v", err)
	}
	holds(t, d, 2)
}

// inSmallDisk runs the test again in a mount namespace of its own, where dir is a file system of the given size.
func inSmallDisk(t *testing.T, size string) (dir string, inside bool) {
	t.Helper()
	const variable = "STORE_TEST_SMALL_DISK"
	if dir := os.Getenv(variable); dir != "" {
		return dir, true
	}
	dir = t.TempDir()
	script := fmt.Sprintf(`mount -t tmpfs -o size=%s none %q && exec "$0" "-test.run=^%s$" -test.v`, size, dir, t.Name())
	cmd := exec.CommandContext(t.Context(), "unshare", "-rm", "sh", "-c", script, os.Args[0])
	cmd.Env = append(os.Environ(), variable+"="+dir)
	out, err := cmd.CombinedOutput()
	switch {
	case strings.Contains(string(out), "--- PASS"):
	case strings.Contains(string(out), "--- FAIL"), strings.Contains(string(out), "panic:"):
		t.Errorf("in a small disk:\n%s", out)
	default:
		t.Skipf("this machine does not let the test mount a small disk: %v %s", err, out)
	}
	return "", false
}

//docs:survival.md the disk is full (no room, or the user's quota)
func TestAFullDiskRefusesGroupsAndStillLetsThemEnd(t *testing.T) {
	dir, inside := inSmallDisk(t, "24m")
	if !inside {
		return
	}
	d := openDisk(t, dir)
	scan(t, d)
	var stored []uint64
	var refused error
	for id := uint64(1); id <= 400 && refused == nil; id++ {
		if refused = try(t, d, Change{Put: []Entry{entry(id, 100_000)}}); refused == nil {
			stored = append(stored, id)
		}
	}
	if !errors.Is(refused, ErrFull) || len(stored) < 50 {
		t.Fatalf("after %d groups of 100 kB in 24 MB: %v", len(stored), refused)
	}
	holds(t, d, stored...)
	if err := try(t, d, Change{Put: []Entry{entry(1000, 100_000)}}); !errors.Is(err, ErrFull) {
		t.Errorf("a second group is answered with %v", err)
	}
	commit(t, d, Change{End: stored[:10], State: []byte(`"acknowledged"`)})
	d.crash()
	d = openDisk(t, dir) // on a disk that is still full
	c := scan(t, d)
	if len(c.groups) != len(stored)-10 || string(c.State) != `"acknowledged"` {
		t.Fatalf("%d groups are left of %d, state %s", len(c.groups), len(stored)-10, c.State)
	}
	holds(t, d, stored[10:]...)
	commit(t, d, Change{End: stored[10:]})
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = openDisk(t, dir)
	commit(t, d, Change{Put: []Entry{entry(2000, 100_000)}})
	holds(t, d, 2000)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAReadOnlyDiskIsNamed(t *testing.T) {
	dir, inside := inSmallDisk(t, "1m")
	if !inside {
		return
	}
	if out, err := exec.CommandContext(t.Context(), "mount", "-o", "remount,ro", dir).CombinedOutput(); err != nil {
		t.Skipf("cannot make the disk read-only: %v %s", err, out)
	}
	_, err := OpenDisk(filepath.Join(dir, "store"), DiskOptions{Always: true})
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("a read-only disk: %v", err)
	}
}

// A disk that becomes read-only under a running server, as Linux does after an error: a clear answer, nothing lost, and
// the store continues when the disk is writable again.
func TestADiskThatBecomesReadOnly(t *testing.T) {
	dir, inside := inSmallDisk(t, "24m")
	if !inside {
		return
	}
	d := openDisk(t, dir)
	scan(t, d)
	commit(t, d, Change{Put: []Entry{entry(1, 1000)}})
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = openDisk(t, dir)
	scan(t, d)
	remount := func(how string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), "mount", "-o", "remount,"+how, dir).CombinedOutput(); err != nil {
			t.Skipf("cannot make the disk %s: %v %s", how, err, out)
		}
	}
	_ = d.bodies.close() // files that are open for writing would keep the disk from becoming read-only
	_ = d.db.Close()
	remount("ro")
	if err := try(t, d, Change{Put: []Entry{entry(2, 1000)}}); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("a group on a disk that is read-only: %v", err)
	}
	pause(d)
	remount("rw")
	d = openDisk(t, dir)
	if c := scan(t, d); len(c.groups) != 1 {
		t.Errorf("%d groups, expected the one that was acknowledged", len(c.groups))
	}
	holds(t, d, 1)
	commit(t, d, Change{Put: []Entry{entry(3, 1000)}})
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// A damaged index is an error that names it, not a panic.
func TestADamagedIndexIsNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDisk(t, dir)
	scan(t, d)
	for id := uint64(1); id <= 400; id++ {
		commit(t, d, Change{Put: []Entry{entry(id, 20)}, State: fmt.Appendf(nil, "%d", id)})
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(dir, indexName))
	if err != nil {
		t.Fatal(err)
	}
	page, seen := os.Getpagesize(), 0
	for n := 2; n*page < len(whole); n++ { // pages 0 and 1 have a checksum
		damaged := slices.Clone(whole)
		for i := range 64 {
			damaged[n*page+i] = 0xff
		}
		for _, content := range [][]byte{damaged, whole[:n*page]} {
			other := t.TempDir()
			if err := os.WriteFile(filepath.Join(other, indexName), content, 0o600); err != nil {
				t.Fatal(err)
			}
			d, err := OpenDisk(other, DiskOptions{})
			switch {
			case err == nil: // the page is not in use
				_ = d.Close()
			case !strings.Contains(err.Error(), "or is damaged"):
				t.Errorf("page %d: %v", n, err)
			default:
				seen++
			}
		}
	}
	if seen == 0 {
		t.Error("no damage was seen")
	}
}

// A value that is longer than what is left of the file is named: to read it would end the process.
func TestALongValueOfAnIndexIsNamed(t *testing.T) {
	t.Parallel()
	path, value := filepath.Join(t.TempDir(), indexName), bytes.Repeat([]byte("v"), 2000)
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket([]byte("bucket"))
		if err == nil {
			err = b.Put([]byte("key"), value)
		}
		return err
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	if err := checkIndex(path); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize() * (bytes.Index(whole, value) / os.Getpagesize())
	for _, size := range []int{0xff0015, len(whole) - 1} {
		binary.NativeEndian.PutUint32(whole[page+28:], uint32(size)) // of the first value of a leaf
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := checkIndex(path); err == nil {
			t.Errorf("a value of %d bytes in a file of %d is no error", size, len(whole))
		}
	}
}
