package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/sdk"
)

// The exit codes of every command; docs/cli says the same.
const (
	exitDone    = 0 // what was asked is done
	exitFailed  = 1 // it failed, or what was asked makes no sense
	exitChanges = 2 // plan --detailed-exitcode: there is something to apply
)

// exitError ends the program with a code and no further word: what there was to say has been said.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// exitCode says how the program ends after err, printing err when nobody did yet.
func exitCode(err error, w io.Writer, s view.Style) int {
	var code exitError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &code):
		return int(code)
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(w, s.Yellow("Interrupted."))
		return exitFailed
	}
	fmt.Fprintf(w, "%s %s\n", s.Red(s.Bold("Error:")), err)
	var told *sdk.Error
	if errors.As(err, &told) {
		if told.Detail != "" {
			fmt.Fprintf(w, "\n%s\n", told.Detail)
		}
		if told.Remedy != "" {
			fmt.Fprintf(w, "\n%s %s\n", s.Bold("What to do:"), told.Remedy)
		}
	}
	return exitFailed
}
