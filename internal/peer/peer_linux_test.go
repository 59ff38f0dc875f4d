package peer

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const stranger = 65534

// listener is a server of another user: its socket, and what accepts one connection as that user.
type listener struct {
	address string
	accept  chan struct{}
	done    chan error
}

// listenAs listens on a thread of another user. A socket belongs to the user of the thread that made or accepted it.
func listenAs(t *testing.T, uid int) *listener {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can act as another user")
	}
	l := &listener{accept: make(chan struct{}), done: make(chan error, 1)}
	ready := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			ready <- errno
			return
		}
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
		}
		if err == nil {
			err = unix.Listen(fd, 8)
		}
		if err == nil {
			at, _ := unix.Getsockname(fd)
			l.address = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}),
				uint16(at.(*unix.SockaddrInet4).Port)).String()
		}
		ready <- err
		if _, more := <-l.accept; err == nil && more {
			_, _, err = unix.Accept(fd)
			l.done <- err
			<-l.accept
		}
		_ = unix.Close(fd)
	}()
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(l.accept) })
	return l
}

// acceptOne accepts a connection as the other user.
func (l *listener) acceptOne(t *testing.T) {
	t.Helper()
	l.accept <- struct{}{}
	if err := <-l.done; err != nil {
		t.Fatal(err)
	}
}

func refusedAs(err error, uid int) bool {
	var e *Error
	return errors.As(err, &e) && e.UID == uid
}

func TestServerOfAnotherUser(t *testing.T) {
	t.Parallel()
	for name, accepted := range map[string]bool{"not accepted yet": false, "accepted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			theirs := listenAs(t, stranger)
			conn, err := net.Dial("tcp", theirs.address)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			if accepted {
				theirs.acceptOne(t)
			}
			if err := Check(conn); !refusedAs(err, stranger) {
				t.Errorf("got %v, want a refusal of user %d", err, stranger)
			}
			if c, err := Dial(t.Context(), "tcp", theirs.address); !refusedAs(err, stranger) {
				t.Errorf("Dial: got %v, want a refusal of user %d", err, stranger)
				_ = c.Close()
			}
		})
	}
}

// A client that sends a header sends it to a server of its own user only.
func TestTransportRefusesAnotherUser(t *testing.T) {
	t.Parallel()
	theirs := listenAs(t, stranger)
	base := "http://" + theirs.address
	client := &http.Client{Transport: Transport(base, &http.Transport{}), Timeout: time.Minute}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer secret")
	if _, err := client.Do(req); !refusedAs(err, stranger) { //nolint:bodyclose // there is no answer
		t.Errorf("got %v, want a refusal of user %d", err, stranger)
	}
}

func TestOwnServers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, network, address string }{
		{name: "IPv4", network: "tcp4", address: "127.0.0.1:0"},
		{name: "all addresses of both families", network: "tcp", address: ":0"},
		{name: "IPv6", network: "tcp6", address: "[::1]:0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen(c.network, c.address)
			if err != nil {
				t.Skipf("this machine has no %s: %v", c.name, err)
			}
			defer func() { _ = l.Close() }()
			_, port, _ := net.SplitHostPort(l.Addr().String())
			host := "127.0.0.1"
			if c.network == "tcp6" {
				host = "::1"
			}
			conn, err := Dial(t.Context(), "tcp", net.JoinHostPort(host, port)) // not accepted yet
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			accepted, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = accepted.Close() }()
			if err := errors.Join(Check(conn), Check(accepted)); err != nil {
				t.Error(err)
			}
		})
	}
}

// A server that has gone is no answer about its owner.
func TestClosedServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = l.Close() // resets connections that wait
	if err := Check(conn); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("got %v, want that the connection is gone", err)
	}
}

func TestClientOfAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can act as another user")
	}
	answers := make(chan error, 2)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter,
		r *http.Request) {
		answers <- CheckClient(r)
	}))
	defer server.Close()
	address := netip.MustParseAddrPort(server.Listener.Addr().String())
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, stranger, stranger, stranger); errno != 0 {
			done <- errno
			return
		}
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Connect(fd, &unix.SockaddrInet4{Addr: address.Addr().As4(), Port: int(address.Port())})
		}
		if err == nil {
			_, err = unix.Write(fd, []byte("GET / HTTP/1.0\r\n\r\n"))
		}
		if err == nil {
			_, err = unix.Read(fd, make([]byte, 1))
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := <-answers; !refusedAs(err, stranger) {
		t.Errorf("got %v, want a refusal of user %d", err, stranger)
	}
	reply, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, reply.Body)
	_ = reply.Body.Close()
	if err := <-answers; err != nil {
		t.Errorf("a client of this user: %v", err)
	}
}

// Both sources say the same, whatever there is of a connection.
func TestTablesAgreeWithNetlink(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	client := netip.MustParseAddrPort(conn.LocalAddr().String())
	server := netip.MustParseAddrPort(conn.RemoteAddr().String())
	none := netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
	look := func(when string) {
		for name, ends := range map[string][2]netip.AddrPort{"the client": {client, server}, "the server": {server, client},
			"the listener": {server, none}} {
			byNetlink, err := diag(ends[0], ends[1])
			if err != nil {
				t.Fatalf("%s, %s: %v", when, name, err)
			}
			byTables, err := fromTables("/proc/net", ends[0], ends[1])
			if err != nil || byTables != byNetlink {
				t.Errorf("%s, %s: netlink %+v, tables %+v, %v", when, name, byNetlink, byTables, err)
			}
		}
	}
	look("before it is accepted")
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = accepted.Close() }()
	look("afterwards")
	for name, lookUp := range map[string]func(of, with netip.AddrPort) (entry, error){"netlink": diag,
		"tables": func(of, with netip.AddrPort) (entry, error) { return fromTables("/proc/net", of, with) }} {
		if _, err := lookUp(netip.MustParseAddrPort("127.0.0.1:1"), none); !errors.Is(err, errNone) {
			t.Errorf("%s: a port without a listener: %v", name, err)
		}
	}
	if _, err := fromTables(t.TempDir(), client, server); err == nil || errors.Is(err, errNone) {
		t.Errorf("without tables: %v, want an error", err)
	}
}

func TestTransportOfAnotherMachine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		base     string
		loopback bool
	}{
		{base: "http://127.0.0.1:8000/v1", loopback: true},
		{base: "http://127.8.8.8", loopback: true},
		{base: "http://[::1]:8000", loopback: true},
		{base: "http://[::ffff:127.0.0.1]:8000", loopback: true},
		{base: "http://LocalHost:8000", loopback: true},
		{base: "http://localhost.", loopback: true},
		{base: "https://example.com/v1"},
		{base: "http://10.0.0.1:8000"},
		{base: "http://localhost.example.com"},
	} {
		tr := Transport(c.base, &http.Transport{Proxy: http.ProxyFromEnvironment})
		if checked := tr.DialContext != nil && tr.Proxy == nil; checked != c.loopback {
			t.Errorf("%s: checked %v, want %v", c.base, checked, c.loopback)
		}
	}
}

func FuzzLine(f *testing.F) {
	f.Add("   1: 0100007F:E1D1 0100007F:CCD4 01 00000000:00000000 00:00000000 00000000     0        0 19934 1 0 20 0 0 " +
		"10 -1")
	f.Add("   0: 00000000000000000000000000000000:0016 00000000000000000000000000000000:0000 0A 0:0 00:0 0 1000 0 7 1")
	f.Fuzz(func(t *testing.T, text string) {
		local, remote, e, err := line(text)
		if err == nil && (!local.IsValid() || !remote.IsValid() || e.uid < 0) {
			t.Errorf("%q: %v %v %+v", text, local, remote, e)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	accepted, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = accepted.Close() }()
	for b.Loop() {
		if err := Check(conn); err != nil {
			b.Fatal(err)
		}
	}
}
