package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/engine/state"
)

// leaveTerminal continues without a terminal that was closed, as a detached engine does: what would be written to it
// goes to engine.log in the run directory. Output that leads into a file or a pipe stays what it is.
func (a *app) leaveTerminal(dir state.Dir) {
	log, err := private.OpenFile(session.EngineLog(dir), os.O_CREATE|os.O_RDWR|os.O_APPEND)
	if err != nil { // what is written is lost then; the run does not depend on it
		if log, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
			return
		}
	}
	defer func() { _ = log.Close() }()
	for _, f := range []*os.File{os.Stdin, os.Stdout, os.Stderr} {
		if hungUp(f) {
			// whoever else writes there, the Go runtime for one, is redirected, too
			_ = unix.Dup2(int(log.Fd()), int(f.Fd()))
		}
	}
	fmt.Fprintf(log,
		"recipe: the terminal was closed. The run continues in process %d; recipe status and recipe logs -f show "+
			"it, recipe stop ends it at a checkpoint\n", os.Getpid())
}

// hungUp reports whether a file is a terminal, or was one: one that was closed does not answer any more.
func hungUp(f *os.File) bool {
	if term.IsTerminal(int(f.Fd())) {
		return true
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}
