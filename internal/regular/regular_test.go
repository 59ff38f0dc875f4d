package regular_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/recipe-rl/recipe/internal/regular"
)

// made is a directory with a file of ten bytes and everything that is none.
func made(t *testing.T) string {
	t.Helper()
	dir, outside := t.TempDir(), t.TempDir()
	err := errors.Join(os.WriteFile(filepath.Join(dir, "file"), []byte("0123456789"), 0o600),
		os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600),
		os.Mkdir(filepath.Join(dir, "folder"), 0o700),
		os.Symlink("file", filepath.Join(dir, "inside")),
		os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "out")),
		os.Symlink(outside, filepath.Join(dir, "away")),
		os.Symlink("/dev/zero", filepath.Join(dir, "zero")),
		syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestOnlyRegularFilesAreRead(t *testing.T) {
	t.Parallel()
	dir := made(t)
	for name, want := range map[string]struct{ open, in, follow bool }{
		"file":         {open: true, in: true, follow: true},
		"inside":       {open: false, in: true, follow: true},
		"out":          {open: false, in: false, follow: true},
		"away/secret":  {open: true, in: false, follow: true}, // Open looks at the last name only
		"../x":         {},
		"zero":         {},
		"fifo":         {},
		"folder":       {},
		"missing":      {},
		"file/missing": {},
	} {
		path := filepath.Join(dir, name)
		_, open := regular.ReadFile(path, 100)
		_, in := regular.ReadFileIn(dir, name, 100)
		_, follow := regular.FollowFile(path, 100)
		if (open == nil) != want.open || (in == nil) != want.in || (follow == nil) != want.follow {
			t.Errorf("%s: %v; %v; %v", name, open, in, follow)
		}
	}
	if _, err := regular.ReadFileIn(dir, "missing", 1); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestWhatIsReadHasALimit(t *testing.T) {
	t.Parallel()
	path := filepath.Join(made(t), "file")
	if text, err := regular.ReadFile(path, 10); err != nil || len(text) != 10 {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := regular.ReadFile(path, 9); !errors.Is(err, regular.ErrRefused) {
		t.Errorf("a file above the limit: %v", err)
	}
	f, info, err := regular.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for _, c := range []struct {
		name         string
		offset, size int64
		ok           bool
	}{
		{name: "all", offset: 0, size: 10, ok: true},
		{name: "nothing at the end", offset: 10, size: 0, ok: true},
		{name: "beyond the end", offset: 5, size: 6},
		{name: "a sum that overflows", offset: math.MaxInt64, size: 1},
		{name: "a size that overflows", offset: 1, size: math.MaxInt64},
		{name: "before the beginning", offset: -1, size: 5},
		{name: "less than nothing", offset: 5, size: -1},
		{name: "above the limit", offset: 0, size: 9},
	} {
		limit := int64(10)
		if c.name == "above the limit" {
			limit = 8
		}
		if _, err := regular.Part(f, info, c.offset, c.size, limit); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// A sparse file takes no memory: its size is known before it is read.
func TestAFileAboveTheLimitIsNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sparse")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 64<<20); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := regular.FollowFile(path, 32<<20)
	runtime.ReadMemStats(&after)
	if taken := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, regular.ErrRefused) || taken > 8<<20 {
		t.Errorf("got %v, and it took %d bytes of memory", err, taken)
	}
}
