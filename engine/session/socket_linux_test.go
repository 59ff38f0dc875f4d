package session

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/recipe-rl/recipe/internal/peer"
)

// A socket that belongs to another user is refused, and nothing is sent to it.
//
//docs:survival.md another user's process listens at the path of the engine's socket
func TestAnEngineOfAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can listen as another user")
	}
	d := runDir(t, "r")
	open := t.TempDir()
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	opened, err := os.Open(open)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = opened.Close() }()
	// Past the folders around it: the temporary folder may be one that only this user can enter.
	theirs := fmt.Sprintf("/proc/self/fd/%d/s", opened.Fd())
	listening := make(chan net.Listener)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		var l net.Listener
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, 65534, 65534, 65534); errno == 0 {
			l, _ = net.Listen("unix", theirs)
		}
		listening <- l
	}()
	l := <-listening
	if l == nil {
		t.Fatal("the other user could not listen")
	}
	defer func() { _ = l.Close() }()
	path, err := listenPath(d)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(open, "s"), path); err != nil {
		t.Fatal(err)
	}
	_, err = Dial(t.Context(), d)
	var stranger *peer.Error
	if !errors.As(err, &stranger) || stranger.UID != 65534 {
		t.Errorf("%v; want a refusal of user 65534", err)
	}
}
