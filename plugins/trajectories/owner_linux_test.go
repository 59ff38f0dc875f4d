package trajectories

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Another user of the machine who has the admin token can do nothing with it, on no route.
func TestTheAdminTokenOfAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can act as another user")
	}
	server := httptest.NewServer(newFixture(t, Config{Token: "user", AdminToken: "admin"}).Handler())
	defer server.Close()
	address := server.Listener.Addr().String()
	ask := func(as uintptr, path, token string) int {
		t.Helper()
		code, failed := 0, error(nil)
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, as, as, as); errno != 0 {
				failed = errno
				return
			}
			// A socket belongs to the user of the thread that made it.
			c, err := net.DialTimeout("tcp", address, time.Minute)
			if failed = err; err != nil {
				return
			}
			defer func() { _ = c.Close() }()
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			if _, failed = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", path, address,
				token); failed != nil {
				return
			}
			reply, err := http.ReadResponse(bufio.NewReader(c), nil)
			if failed = err; err == nil {
				code = reply.StatusCode
				_ = reply.Body.Close()
			}
		}()
		<-done
		if failed != nil {
			t.Fatal(failed)
		}
		return code
	}
	for _, path := range []string{"/status", "/batch", "/t/admin/groups", "/reset_data"} {
		if got := ask(65534, path, "admin"); got != http.StatusForbidden {
			t.Errorf("%s as another user: %d, want 403", path, got)
		}
		if got := ask(0, path, "admin"); got != http.StatusOK {
			t.Errorf("%s as this user: %d, want 200", path, got)
		}
	}
	if got := ask(65534, "/status", "user"); got != http.StatusOK {
		t.Errorf("the other token as another user: %d, want 200", got)
	}
}
