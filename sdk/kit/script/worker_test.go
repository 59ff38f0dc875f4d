package script

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sourcegraph/jsonrpc2"

	"github.com/recipe-rl/recipe/sdk/proc"
)

// broken is a connection with a process that has ended, when nothing has read from it since.
type broken struct{ closed chan struct{} }

func (b broken) ReadObject(any) error { <-b.closed; return io.EOF }

func (b broken) Close() error { close(b.closed); return nil }

// WriteObject fails as a write to such a socket does.
func (b broken) WriteObject(v any) error {
	ours, theirs, err := socketPair()
	if err != nil {
		return err
	}
	defer func() { _ = ours.Close() }()
	_ = theirs.Close()
	_, err = ours.Write([]byte("{}"))
	return err
}

// A request may be the first to find that the process has ended: then it is said how, not that a pipe is broken.
func TestARequestThatFindsThatTheProcessHasEnded(t *testing.T) {
	program, err := proc.Start(t.Context(), proc.Spec{Name: workerName, LogDir: t.TempDir(),
		Argv: []string{"sh", "-c", "echo out of luck; exit 7"}})
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{program: program, failed: make(chan struct{})}
	w.conn = jsonrpc2.NewConn(t.Context(), broken{make(chan struct{})}, w)
	t.Cleanup(func() { _ = w.conn.Close() })
	time.AfterFunc(50*time.Millisecond, func() { <-program.Done(); close(w.failed) })
	err = w.call(t.Context(), "next", struct{}{}, nil)
	for _, want := range []string{"the environment's Python process has ended", "exit status 7"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the call failed with %v, want %q in it", err, want)
		}
	}
}
