package envserver

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
)

// ipLocalPortRange bounds the ports from which the system chooses for a socket (Linux 6.3).
const ipLocalPortRange = 51

// TestAReservedPortIsTheServersOnly asks the system for any free port out of one, which is reserved: it gives none. The
// server that names the port gets it, and hears who connects.
func TestAReservedPortIsTheServersOnly(t *testing.T) {
	port, held, err := reserve()
	if err != nil {
		t.Fatal(err)
	}
	if err := anyPortOutOf(t, port); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("another program that asks for any free port gets %d: %v, want %v", port, err, syscall.EADDRINUSE)
	}
	server, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatalf("the server itself: %v", err)
	}
	client, err := net.Dial("tcp", server.Addr().String())
	if err != nil {
		t.Fatalf("its client: %v", err)
	}
	heard, err := server.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []interface{ Close() error }{client, heard, server, held} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// anyPortOutOf binds a socket to whatever free port the system chooses out of this one, as servers do.
func anyPortOutOf(t *testing.T, port int) error {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }()
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	if err := syscall.SetsockoptInt(fd, syscall.IPPROTO_IP, ipLocalPortRange, port<<16|port); err != nil {
		t.Skipf("this kernel chooses from one range for all: %v", err)
	}
	return syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
}
