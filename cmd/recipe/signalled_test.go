package main

import (
	"errors"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// reading starts a command whose input goes on, and returns once it reads it: what is written is more than fits into
// the pipe.
func (w *workshop) reading(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := w.command(args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = in.Close()
	})
	if _, err := io.Copy(in, strings.NewReader(strings.Repeat(" \n", 1<<19))); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// ended waits for the end of a command that repeat is to bring about, and says which signal it was.
func ended(t *testing.T, cmd *exec.Cmd, repeat func()) syscall.Signal {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	deadline := time.After(time.Minute)
	for {
		select {
		case err := <-done:
			var exit *exec.ExitError
			if !errors.As(err, &exit) {
				return 0
			}
			status, _ := exit.Sys().(syscall.WaitStatus)
			return status.Signal()
		case <-time.After(100 * time.Millisecond):
			repeat()
		case <-deadline:
			t.Fatal("the command goes on")
		}
	}
}

// A command that only reads and writes files ends at the first signal, like any program.
//
//docs:survival.md Ctrl-C or SIGTERM, to any other command
func TestASignalEndsWhatReadsItsInput(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"fmt", "-"}, {"console", "quickstart.hcl"}, {"validate", "/dev/stdin"}} {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
			t.Run(args[0]+" "+sig.String(), func(t *testing.T) {
				t.Parallel()
				cmd := newWorkshop(t).reading(t, args...)
				if err := cmd.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
				if got := ended(t, cmd, func() {}); got != sig {
					t.Errorf("it ended with signal %d, want %d", got, sig)
				}
			})
		}
	}
}

// A command that is stuck where it does not see the first signal ends at a later one. The engine reads its run before
// it listens to signals itself.
//
//docs:survival.md Ctrl-C or SIGTERM, to any other command
func TestALaterSignalEndsACommandThatIsStuck(t *testing.T) {
	t.Parallel()
	cmd := newWorkshop(t).reading(t, "engine")
	term := func() { _ = cmd.Process.Signal(syscall.SIGTERM) }
	if got := ended(t, cmd, term); got != syscall.SIGTERM {
		t.Errorf("it ended with signal %d, want SIGTERM", got)
	}
}
