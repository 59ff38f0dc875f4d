package remote

import (
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk/kit/nodes"
)

// TestAPluginConnectsToItsOtherMachine connects to a port on loopback of the second machine of a job, by the agents of
// both.
func TestAPluginConnectsToItsOtherMachine(t *testing.T) {
	s := newSite(t)
	j, err := onTwo(s, s.hub(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	_, said := plugin(s, j, `printf %s "$`+nodes.SocketKey+`" >said`)
	t.Setenv(nodes.SocketKey, said())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "hello ") // before it was asked anything
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}
	}()
	port := l.Addr().(*net.TCPAddr).Port
	f, err := nodes.Listen(1)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.To(port)
	c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(f.Port())))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, "world")
	_ = c.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(c); string(got) != "hello world" || err != nil {
		t.Errorf("the other machine answers %q, %v; expected hello world", got, err)
	}
	_ = l.Close()
	if _, err := nodes.Dial(s.ctx, 1, port); err == nil || errors.Is(err, nodes.ErrAway) ||
		!strings.Contains(err.Error(), "connection refused") {
		t.Errorf("a port at which nothing listens: %v", err)
	}
	if _, err := nodes.Dial(s.ctx, 2, port); !errors.Is(err, nodes.ErrAway) {
		t.Errorf("a machine that the job does not have: %v", err)
	}
}
