package interpreter

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// CacheDir is where this user's programs and environments of recipe are kept: below the user's cache directory. A
// process that has none gets a folder for temporary files that nobody else can write to: HOME is not set or, as in a
// container that runs as another user, names a folder in which nothing can be made.
func CacheDir() string {
	if dir, err := os.UserCacheDir(); err == nil {
		if dir = filepath.Join(dir, "recipe"); canBeMade(dir) {
			return dir
		}
	}
	return temporary()
}

// canBeMade says whether a folder is there or can be made. One that is there may be read-only: an image may hold what
// was fetched when it was built.
func canBeMade(dir string) bool {
	if _, err := os.Stat(dir); err == nil {
		return true
	}
	for above := filepath.Dir(dir); ; above = filepath.Dir(above) {
		if _, err := os.Stat(above); err == nil || above == filepath.Dir(above) {
			return unix.Access(above, unix.W_OK|unix.X_OK) == nil
		}
	}
}

// temporary is the same folder for all processes of a user, so that what one of them has fetched is there for the next.
var temporary = sync.OnceValue(func() string {
	shared := filepath.Join(os.TempDir(), fmt.Sprintf("recipe-cache-%d", os.Geteuid()))
	if _ = os.Mkdir(shared, 0o700); own(shared) {
		return shared
	}
	// Somebody else made it, and would have this user run what is in it.
	alone, err := os.MkdirTemp("", "recipe-cache-")
	if err != nil {
		return filepath.Join(shared, "not-writable") // what is written there says why it cannot be
	}
	return alone
})

// own reports whether a path is a folder that this user alone can write to.
func own(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() || info.Mode().Perm()&0o022 != 0 {
		return false
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Geteuid()
}
