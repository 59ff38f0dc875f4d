package interpreter

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is in the cache is run, so that nobody else may be able to put something there.
func TestOwn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	folder := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil { // Mkdir obeys the umask
			t.Fatal(err)
		}
		return path
	}
	mine := folder("mine", 0o700)
	link, file := filepath.Join(dir, "link"), filepath.Join(dir, "file")
	if err := os.Symlink(mine, link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		mine: true, folder("read", 0o755): true, folder("group", 0o770): false, folder("all", 0o777|os.ModeSticky): false,
		link: false, file: false, filepath.Join(dir, "none"): false,
	} {
		if got := own(path); got != want {
			t.Errorf("own(%s) = %t; want %t", filepath.Base(path), got, want)
		}
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(mine, 65534, -1); err != nil {
			t.Fatal(err)
		}
		if own(mine) {
			t.Error("a folder of another user is taken for one's own")
		}
	}
}

// A process without HOME, as a service or a container starts it, uses a folder of its own and not one that others make.
func TestCacheDirWithoutHome(t *testing.T) {
	t.Setenv("HOME", "")
	t.Setenv("XDG_CACHE_HOME", "")
	dir := CacheDir()
	t.Cleanup(func() { _ = os.Remove(dir) }) // as long as it is empty
	if !own(dir) {
		t.Errorf("%s can be written to by others", dir)
	}
	if got := CacheDir(); got != dir {
		t.Errorf("the next call gives %s; want %s again", got, dir)
	}
	if filepath.Dir(Cache()) != dir {
		t.Errorf("environments are in %s; want them in %s", Cache(), dir)
	}
}

// A container that runs as another user than its image was made for has a HOME, such as /, in which that user may make
// nothing. What is there already counts, even when it is read-only.
func TestCacheDirInAHomeThatTakesNothing(t *testing.T) {
	home := t.TempDir()
	full := filepath.Join(home, "a file")
	if err := os.WriteFile(full, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", full) // takes nothing of root either
	if dir := CacheDir(); strings.HasPrefix(dir, home) {
		t.Errorf("the cache is to be at %s, where nothing can be made", dir)
	} else {
		t.Cleanup(func() { _ = os.Remove(dir) }) // as long as it is empty
	}
	t.Setenv("HOME", home)
	dir := CacheDir()
	if !strings.HasPrefix(dir, home) {
		t.Errorf("the cache is to be at %s, want it below %s, where it can be made", dir, home)
	}
	if err := os.MkdirAll(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	if again := CacheDir(); again != dir {
		t.Errorf("with a read-only cache at %s the cache is to be at %s", dir, again)
	}
}
