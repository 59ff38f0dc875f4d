package worker

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/sourcegraph/jsonrpc2"
)

// gone is a connection with a worker that has ended, before the end of the stream was read.
type gone struct {
	net.Conn
	closed chan struct{}
}

func (g gone) ReadObject(any) error { <-g.closed; return io.EOF }

func (g gone) WriteObject(any) error { _, err := g.Write([]byte("{}")); return err }

func (g gone) Close() error { close(g.closed); return nil }

// A request may be the first to find that the worker has ended: its end is awaited then, which says why.
func TestARequestThatFindsThatTheWorkerHasEnded(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	rpc := jsonrpc2.NewConn(t.Context(), gone{conn, make(chan struct{})}, &peer{})
	t.Cleanup(func() { _ = rpc.Close() })
	l := &link{main: rpc}
	if err := l.call(t.Context(), "publish", nil, nil); !errors.Is(err, errGone) {
		t.Errorf("the call failed with %v, want that the worker is not running", err)
	}
}
