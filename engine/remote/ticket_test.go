package remote

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/agent"
	"github.com/recipe-rl/recipe/sdk/executor"
)

// expecting is a hub that expects the agent of one job, and its invitation.
func expecting(t *testing.T) (*Hub, invitation) {
	t.Helper()
	h := New(t.TempDir(), "r1", 0)
	t.Cleanup(h.Close)
	i := invitation{Job: executor.Key{Run: "r1", Block: "inference.tiny.p", Attempt: 1}, Token: "a token of the job",
		Instances: map[int]string{}}
	dir := t.TempDir()
	if err := agent.WriteJSON(filepath.Join(dir, joinName), i); err != nil {
		t.Fatal(err)
	}
	h.dirs[i.Job] = dir
	return h, i
}

// The program goes to scripts of jobs that are expected, and to no one who has only found the port.
func TestTheProgramNeedsATicket(t *testing.T) {
	t.Parallel()
	h, i := expecting(t)
	for name, c := range map[string]struct {
		line string
		ok   bool
	}{
		"the ticket":             {line: "program abc 0 " + i.ticket() + "\n", ok: true},
		"an offset":              {line: "program abc 4096 " + i.ticket() + "\n", ok: true},
		"no ticket":              {line: "program abc 0\n"},
		"another ticket":         {line: "program abc 0 " + strings.Repeat("0", 32) + "\n"},
		"the token":              {line: "program abc 0 " + i.Token + "\n"},
		"a part of it":           {line: "program abc 0 " + i.ticket()[:31] + "\n"},
		"a negative offset":      {line: "program abc -1 " + i.ticket() + "\n"},
		"an offset that is none": {line: "program abc x " + i.ticket() + "\n"},
		"something else":         {line: "GET / HTTP/1.1\n"},
	} {
		f, err := h.program(c.line)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		if f != nil {
			_ = f.Close()
		}
	}
	delete(h.dirs, i.Job)
	if _, err := h.program("program abc 0 " + i.ticket() + "\n"); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("after the job: %v", err)
	}
}

// Connections that take the program and do not read have a bound, and so has a line without an end.
func TestRequestsForTheProgramAreBounded(t *testing.T) {
	t.Parallel()
	h, i := expecting(t)
	ask := func(text string) (asks bool, err error) {
		client, server := net.Pipe()
		t.Cleanup(func() { _ = client.Close() })
		go func() { _, _ = io.WriteString(client, text) }()
		_, asks, err = h.peek(server)
		if err != nil {
			_ = server.Close()
		}
		return asks, err
	}
	line := "program abc 0 " + i.ticket() + "\n"
	for n := range programsAtOnce {
		if asks, err := ask(line); !asks || err != nil {
			t.Fatalf("request %d: %v %v", n, asks, err)
		}
	}
	if asks, err := ask(line); asks || err == nil {
		t.Error("one more is answered")
	}
	if asks, err := ask(strings.Repeat("p", 1<<20)); asks || err == nil {
		t.Error("a line without an end is answered")
	}
	if helloTimeout > time.Minute {
		t.Errorf("a connection that does not read holds its place for %s", helloTimeout)
	}
}
