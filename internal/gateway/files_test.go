package gateway

import (
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// exhausted is a listener of a process whose open files are all in use at first.
type exhausted struct {
	net.Listener
	left atomic.Int32
}

func (l *exhausted) Accept() (net.Conn, error) {
	if l.left.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

// A gateway without open files says so once, and serves when there are some again.
func TestAGatewayWithoutOpenFilesSaysSo(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := &exhausted{Listener: l}
	listener.left.Store(3)
	var ev events
	g := start(t, Config{Listener: listener, Events: ev.add}, newEngine(t))
	post(t, g, "/v1/models", "")
	if n := ev.count(EventNoFiles); n != 1 {
		t.Errorf("it said %d times that there are no open files, want once", n)
	}
	for _, e := range ev.list {
		if e.Kind == EventNoFiles && (!strings.HasPrefix(e.Message, "the gateway at 127.0.0.1:") ||
			!strings.Contains(e.Message, "ulimit -n 4096")) {
			t.Errorf("it said %q", e.Message)
		}
	}
}
