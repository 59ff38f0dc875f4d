package function

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Of a large file samples count, its size and the time of its change.
func TestLargeFilesAreSampled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "large")
	digest := func() string {
		t.Helper()
		made, err := (&Files{Dir: dir}).Content("large")
		if err != nil || !strings.HasPrefix(made, "sampled:") {
			t.Fatalf("%q, %v", made, err)
		}
		return made
	}
	at := time.Unix(1e9, 0)
	set := func(size int64, at time.Time) {
		t.Helper()
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path, []byte("first"), 0o600); err != nil {
		t.Fatal(err)
	}
	set(wholeFile+1, at)
	first := digest()
	if digest() != first {
		t.Error("the same file has two digests")
	}
	set(wholeFile+2, at)
	if digest() == first {
		t.Error("the size does not count")
	}
	set(wholeFile+1, at.Add(time.Second))
	if digest() == first {
		t.Error("the time of the change does not count")
	}
}

// What is read as a whole has a limit for all files together.
func TestContentsHaveABudget(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := &Files{Dir: dir, whole: wholeTotal - 4}
	for _, c := range []struct{ name, text, want string }{
		{name: "a", text: "12345", want: "sampled:"}, {name: "b", text: "1234", want: "sha256:"},
		{name: "c", text: "1", want: "sampled:"},
	} {
		if err := os.WriteFile(filepath.Join(dir, c.name), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := f.Content(c.name); err != nil || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, %v, want %s", c.name, got, err, c.want)
		}
	}
}
