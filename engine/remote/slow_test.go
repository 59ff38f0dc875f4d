package remote

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/agent"
)

// slow listens on loopback and passes connections on to an address, each piece of bytes later by the delay.
func slow(t *testing.T, address string, delay time.Duration) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", address)
			if err != nil {
				_ = c.Close()
				continue
			}
			go later(to, c, delay)
			go later(c, to, delay)
		}
	}()
	return l.Addr().String()
}

// later copies from one connection to the other, and closes both at the end.
func later(to, from net.Conn, delay time.Duration) {
	type piece struct {
		data []byte
		due  time.Time
	}
	pieces := make(chan piece, 1024)
	go func() {
		defer close(pieces)
		for {
			data := make([]byte, 32<<10)
			n, err := from.Read(data)
			if n > 0 {
				pieces <- piece{data[:n], time.Now().Add(delay)}
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range pieces {
		time.Sleep(time.Until(p.due))
		if _, err := to.Write(p.data); err != nil {
			break
		}
	}
	_, _ = to.Close(), from.Close()
	for range pieces { // until the reader has seen the end
	}
}

// TestAnAgentOverASlowNetwork delays every packet between an agent and its engine by 200 ms in each direction.
func TestAnAgentOverASlowNetwork(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := s.hub(time.Minute)
	if err := h.listen(true); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "addresses.json")
	s.cluster.engine = func(string) string { return file }
	err := agent.WriteJSON(file, agent.Addresses{Format: agent.BootstrapFormat,
		Addresses: []string{slow(t, h.listeners[true].Addr().String(), 200*time.Millisecond)}})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	j := s.submit(h, "trainer.tiny.a")
	if took := time.Since(start); took < 400*time.Millisecond {
		t.Fatalf("the agent connected within %s: it was not delayed", took)
	}
	p := s.sleeper(j)
	if _, err := j.Find(s.ctx, p.Identity()); err != nil {
		t.Errorf("the process is not found: %v", err)
	}
	if err := p.Kill(s.ctx); err != nil {
		t.Error(err)
	}
	s.exited(p, "it was killed")
}
