package peer

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// asStranger runs a function on a thread that belongs to another user, and ends the thread.
func asStranger(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can act as another user")
	}
	done := make(chan syscall.Errno)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		_, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, stranger, stranger, stranger)
		if errno == 0 {
			f()
		}
		done <- errno
	}()
	if errno := <-done; errno != 0 {
		t.Fatal(errno)
	}
}

// everybodys makes a folder in which every user can make sockets, and returns a path to it that leads past the folders
// around it: the temporary folder may be one that only this user can enter.
func everybodys(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	opened, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	return fmt.Sprintf("/proc/self/fd/%d", opened.Fd())
}

func TestAServerOfAnotherUserIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(everybodys(t), "s")
	var l net.Listener
	asStranger(t, func() { l, _ = net.Listen("unix", path) })
	if l == nil {
		t.Fatal("the other user could not listen")
	}
	defer func() { _ = l.Close() }()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	var e *Error
	if err := Check(conn); !errors.As(err, &e) || e.UID != stranger {
		t.Errorf("%v; want a refusal of user %d", err, stranger)
	}
}

//docs:survival.md another user's process listens at the path of the engine's socket
func TestAClientOfAnotherUserIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(everybodys(t), "s")
	inner, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = inner.Close() }()
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	accepted := make(chan net.Conn, 2)
	go func() {
		for {
			conn, err := Listener{inner}.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- conn
		}
	}()
	var theirs net.Conn
	asStranger(t, func() { theirs, _ = net.Dial("unix", path) })
	if theirs == nil {
		t.Fatal("the other user could not connect")
	}
	defer func() { _ = theirs.Close() }()
	if err := theirs.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(theirs); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("reading from a server that refuses: %v", err)
	}
	mine, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mine.Close() }()
	if conn := <-accepted; conn == nil || Check(conn) != nil {
		t.Error("the first connection that was accepted is not this user's")
	} else {
		_ = conn.Close()
	}
}
