package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// A program that takes the rights of its own folder does not keep others from what it has left there.
func TestAFolderWithoutRightsIsTidied(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	folder := filepath.Join(top, "work")
	err := errors.Join(os.MkdirAll(filepath.Join(folder, "sub"), 0o700), os.Symlink("/etc/hostname",
		filepath.Join(folder, "sub", "out")), os.Chmod(filepath.Join(folder, "sub"), 0o000))
	user := os.Geteuid()
	if user == 0 { // whom rights do not hold up
		user = 65534
		err = errors.Join(err, os.Chmod(filepath.Dir(top), 0o755), filepath.WalkDir(top,
			func(path string, _ fs.DirEntry, err error) error {
				return errors.Join(err, os.Lchown(path, user, user))
			}))
	}
	if err = errors.Join(err, os.Chmod(folder, 0o000)); err != nil {
		t.Fatal(err)
	}
	removed, done := 0, make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(user), uintptr(user), uintptr(user)); errno != 0 {
			done <- errno
			return
		}
		var err error
		removed, err = Tidy(t.Context(), folder, "/work")
		done <- err
	}()
	if err := <-done; err != nil || removed != 1 {
		t.Errorf("%d removed, %v; want the link", removed, err)
	}
}
