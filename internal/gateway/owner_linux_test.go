package gateway

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Another user of the machine who has the admin token can do nothing with it.
func TestAdminTokenOfAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can act as another user")
	}
	g := start(t, Config{})
	ask := func(as int, path string) string {
		t.Helper()
		type answer struct {
			text string
			err  error
		}
		done := make(chan answer, 1)
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(as), uintptr(as), uintptr(as)); errno != 0 {
				done <- answer{err: errno}
				return
			}
			// A socket belongs to the user of the thread that made it.
			c, err := net.DialTimeout("tcp", g.Addr().String(), time.Minute)
			if err != nil {
				done <- answer{err: err}
				return
			}
			defer func() { _ = c.Close() }()
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			_, err = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", path, adminToken)
			if err != nil {
				done <- answer{err: err}
				return
			}
			reply, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				done <- answer{err: err}
				return
			}
			_ = reply.Body.Close()
			done <- answer{text: reply.Status}
		}()
		a := <-done
		if a.err != nil {
			t.Fatal(a.err)
		}
		return a.text
	}
	for _, path := range []string{"/recipe/v1/status", "/v1/models", "/metrics"} {
		if got := ask(65534, path); !strings.HasPrefix(got, "403") {
			t.Errorf("%s as another user: %s, want 403", path, got)
		}
		if got := ask(0, path); strings.HasPrefix(got, "40") {
			t.Errorf("%s as this user: %s", path, got)
		}
	}
}
