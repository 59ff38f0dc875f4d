package worker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk/kit/nodes"
	"github.com/recipe-rl/recipe/sdk/proc"
)

// When a program on several machines fails, the machine is named on which the reason lies, whoever notices first.
func TestTheMachineWithTheReasonIsNamed(t *testing.T) {
	t.Setenv(nodes.AddressesKey, "10.0.0.1,10.0.0.2")
	lost := "RuntimeError: [../gloo/transport/tcp/pair.cc:525] Connection closed by peer [10.0.0.2]:41035"
	for what, c := range map[string]struct {
		reported string // by the first machine's rank; empty: nothing
		log      string // of the second machine
		named    bool
	}{
		"a rank of the second is killed":        {"", "exitcode: -9, Signal 9 (SIGKILL) received", true},
		"and the first notices":                 {lost, "exitcode: -9, Signal 9 (SIGKILL) received", true},
		"the second is lost":                    {lost, "Error: machine 1 of the job cannot be reached any more: EOF", true},
		"and had lost the first":                {"", lost + "\nmachine 1 of the job cannot be reached any more: EOF", true},
		"a rank of the first is killed":         {"", "RuntimeError: Connection reset by peer", false},
		"the first has a reason of its own":     {"RuntimeError: shapes do not fit", "exitcode: 1", false},
		"both have lost a third, or each other": {lost, lost, false},
	} {
		second, err := proc.Start(t.Context(), proc.Spec{Name: "worker-1", LogDir: t.TempDir(),
			Argv: []string{"/bin/sh", "-c", `echo "$1"; exit 1`, "sh", c.log}})
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-second.Done():
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: the program does not end", what)
		}
		w := newWatch(&Trainer[struct{}]{})
		if c.reported != "" {
			w.failure = &problem{Code: "internal", Message: c.reported}
		}
		err = w.blamed(context.Background(), 1, second)
		if named := err != nil && strings.Contains(err.Error(), "on machine 1 (10.0.0.2)"); named != c.named {
			t.Errorf("%s: %v; the second machine is named: %t, expected %t", what, err, named, c.named)
		}
		stop, cancel := context.WithCancelCause(context.Background())
		cancel(errors.New("asked to stop"))
		if err := w.blamed(stop, 1, second); err != nil {
			t.Errorf("%s, when the block is stopped: %v; expected nothing", what, err)
		}
	}
}
