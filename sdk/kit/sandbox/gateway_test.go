package sandbox

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk/kit/sandbox/inside"
)

// A program may connect to its own socket as often as it likes: what it takes of the process outside has a limit, and
// other sandboxes have ways of their own.
func TestConnectionsOfASandboxAreBounded(t *testing.T) {
	t.Parallel()
	gateway, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = gateway.Close() }()
	var accepted atomic.Int64
	go func() {
		for {
			conn, err := gateway.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			_, _ = conn.Write([]byte("."))
			defer func() { _ = conn.Close() }()
		}
	}()
	forward, err := Forward("http://" + gateway.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	var ways []*Way
	for range 2 {
		w, err := forward.Open()
		if err != nil {
			t.Fatal(err)
		}
		ways = append(ways, w)
	}
	ask := func(w *Way) error {
		conn, err := net.Dial("unix", w.Gateway().socket)
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		_, err = io.ReadFull(conn, make([]byte, 1))
		return err
	}
	for range inside.MostConnections {
		if err := ask(ways[0]); err != nil {
			t.Fatal(err)
		}
	}
	if err := ask(ways[0]); err == nil || accepted.Load() != inside.MostConnections {
		t.Errorf("%d connections at a time, want %d; %v", accepted.Load(), inside.MostConnections, err)
	}
	if err := ask(ways[1]); err != nil {
		t.Errorf("another sandbox: %v", err)
	}
	if err := errors.Join(ways[0].Close(), ways[1].Close(), forward.Close()); err != nil {
		t.Error(err)
	}
}
