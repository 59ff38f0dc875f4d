package taskfolder

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// A file whose rights an agent has taken is copied to the tests all the same: an agent keeps no reward away so.
func TestAFileWithoutRightsIsCopied(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	from, to := Mount{filepath.Join(top, "from"), "/app"}, Mount{filepath.Join(top, "to"), "/app"}
	closed := filepath.Join(from.Host, "out", "closed")
	err := errors.Join(os.MkdirAll(filepath.Dir(closed), 0o700), os.Mkdir(to.Host, 0o700),
		os.WriteFile(closed, []byte("x"), 0o000))
	user := os.Geteuid()
	if user == 0 { // whom rights do not hold up
		user = 65534
		err = errors.Join(err, os.Chmod(filepath.Dir(top), 0o755), filepath.WalkDir(top,
			func(path string, _ fs.DirEntry, err error) error { return errors.Join(err, os.Chown(path, user, user)) }))
	}
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(user), uintptr(user), uintptr(user)); errno != 0 {
			done <- errno
			return
		}
		done <- Carry("/app/out", []Mount{from}, []Mount{to}, &Room{Bytes: 1 << 20, Files: 10})
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(to.Host, "out", "closed")); err != nil || string(text) != "x" {
		t.Errorf("%q, %v", text, err)
	}
}
