package peer

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestPeerOfTheSameUser(t *testing.T) {
	t.Parallel()
	folder, err := os.MkdirTemp("/tmp", "t") // t.TempDir may have too long a path for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	l, err := net.Listen("unix", filepath.Join(folder, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	client, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	server, err := Listener{l}.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	if err := errors.Join(Check(client), Check(server)); err != nil {
		t.Error(err)
	}
}
