package agent

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/hashicorp/yamux"

	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/sdk"
)

// An agent starts no block where a process may have too few open files, and its engine learns what to do.
func TestAnAgentStartsNothingWithTooFewOpenFiles(t *testing.T) {
	t.Parallel()
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	here, there := net.Pipe()
	mux, err := yamux.Server(there, Multiplex())
	if err != nil {
		t.Fatal(err)
	}
	a := &Agent{files: func() (uint64, error) { return 64, nil }}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		if stream, err := mux.Accept(); err == nil {
			a.answer(t.Context(), mux, stream)
		}
	}()
	client, err := NewClient(here)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Start(t.Context(), host.Command{Argv: []string{"/bin/true"}, Dir: t.TempDir(), Env: os.Environ()})
	var told *sdk.Error
	if !errors.As(err, &told) || !strings.Contains(told.Remedy, "ulimit -n 4096") ||
		!strings.Contains(told.Summary, "a process may have 64 open files on "+machine) {
		t.Errorf("%v, want that a process may have too few open files on %s, and what to do", err, machine)
	}
	client.Close()
	<-answered
	_ = mux.Close()
}
