package listener

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds what another process does at once.
const patience = 30 * time.Second

const (
	serveKey   = "LISTENER_TEST_SERVE" // the earlier address
	answersKey = "LISTENER_TEST_ANSWER"
)

// TestMain is also the process of a block, which answers each connection with its name.
func TestMain(m *testing.M) {
	earlier, ok := os.LookupEnv(serveKey)
	if !ok {
		os.Exit(m.Run())
	}
	Inherit()
	for _, name := range []string{SocketKey, DescriptorKey} {
		if os.Getenv(name) != "" {
			fmt.Println(name, "is still set")
		}
	}
	l, err := Open(context.Background(), earlier, func(at netip.AddrPort) bool { return at.Addr().IsLoopback() },
		"127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(l.Addr())
	for {
		c, err := l.Accept()
		if err != nil {
			os.Exit(1)
		}
		_, _ = io.WriteString(c, os.Getenv(answersKey))
		_ = c.Close()
	}
}

type process struct {
	cmd     *exec.Cmd
	address string
}

func start(t *testing.T, name, socket, earlier string, kept *Kept) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serveKey+"="+earlier, answersKey+"="+name, SocketKey+"="+socket)
	if kept != nil {
		cmd.Env = append(cmd.Env, DescriptorKey+"=3")
		cmd.ExtraFiles = []*os.File{kept.File}
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: cmd}
	t.Cleanup(p.kill)
	line := make([]byte, 256)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	p.address = strings.TrimSpace(string(line[:n]))
	if _, err := netip.ParseAddrPort(p.address); err != nil {
		t.Fatalf("%s printed %q", name, p.address)
	}
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "t") // t.TempDir may have too long a path for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "listener")
}

func take(t *testing.T, path string) *Kept {
	t.Helper()
	kept, err := Take(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kept.Close() })
	return kept
}

func answer(t *testing.T, c net.Conn) string {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(patience))
	got, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A port is never free between two processes of a block, and a connection that is made in between is answered.
func TestPortIsKeptBetweenProcesses(t *testing.T) {
	t.Parallel()
	path := socketPath(t)
	first := start(t, "first", path, "", nil)
	kept := take(t, path)
	if kept.Address != first.address {
		t.Fatalf("kept %s, the process listens on %s", kept.Address, first.address)
	}
	if got := answer(t, dial(t, first.address)); got != "first" {
		t.Fatalf("answered by %q", got)
	}
	first.kill()
	if l, err := net.Listen("tcp", first.address); err == nil {
		_ = l.Close()
		t.Fatal("another process can listen on the port of a dead one")
	}
	between := dial(t, first.address)

	second := start(t, "second", socketPath(t), first.address, kept)
	if second.address != first.address {
		t.Fatalf("the second process listens on %s, want %s", second.address, first.address)
	}
	if got := answer(t, between); got != "second" {
		t.Errorf("the connection made in between was answered by %q", got)
	}
}

// The socket that was kept is used at its own address only.
func TestKeptForAnotherAddress(t *testing.T) {
	t.Parallel()
	for name, earlier := range map[string]string{"another port": "127.0.0.1:1", "no earlier address": "",
		"beyond loopback": "192.0.2.1:80"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := socketPath(t)
			first := start(t, "first", path, "", nil)
			kept := take(t, path)
			first.kill()
			second := start(t, "second", socketPath(t), earlier, kept)
			if second.address == first.address || !strings.HasPrefix(second.address, "127.0.0.1:") {
				t.Errorf("it listens on %s", second.address)
			}
		})
	}
}

// When nothing has the socket any more, waiting connections end.
func TestWaitingConnectionsEnd(t *testing.T) {
	t.Parallel()
	path := socketPath(t)
	first := start(t, "first", path, "", nil)
	kept := take(t, path)
	first.kill()
	between := dial(t, first.address)
	_ = kept.Close()
	_ = between.SetDeadline(time.Now().Add(patience))
	if _, err := between.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read: %v, want a reset", err)
	}
}

func TestTakeRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		send func(t *testing.T, c *net.UnixConn)
		want string
	}{
		{name: "nothing", send: func(*testing.T, *net.UnixConn) {}, want: "EOF"},
		{name: "text alone", send: func(_ *testing.T, c *net.UnixConn) { _, _ = io.WriteString(c, "127.0.0.1:1") },
			want: "expected 1 descriptor, got 0"},
		{name: "a file", send: func(t *testing.T, c *net.UnixConn) {
			f, err := os.Open(os.Args[0])
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = f.Close() }()
			_, _, _ = c.WriteMsgUnix([]byte("127.0.0.1:1"), unix.UnixRights(int(f.Fd())), nil)
		}, want: "socket"},
		{name: "two descriptors", send: func(_ *testing.T, c *net.UnixConn) {
			_, _, _ = c.WriteMsgUnix([]byte("127.0.0.1:1"), unix.UnixRights(0, 1), nil)
		}, want: "expected 1 descriptor, got 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := socketPath(t)
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				c.send(t, conn.(*net.UnixConn))
				_ = conn.Close()
			}()
			kept, err := Take(t.Context(), path)
			if err == nil {
				_ = kept.Close()
				t.Fatal("it was taken")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if _, err := Take(t.Context(), socketPath(t)); err == nil {
		t.Error("taken from nothing")
	}
}
