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
	exitDone    = 0
	exitFailed  = 1 // an error, or wrong arguments
	exitChanges = 2 // plan --detailed-exitcode: there are changes
	exitDenied  = 3 // a policy denied the plan
	exitStopped = 4 // apply: the run was stopped before its end; another apply continues it
)

// exitError exits with a code without printing; the error is already reported.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// exitCode is the exit code after err; it prints err if it was not reported yet.
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
	var described *sdk.Error
	if errors.As(err, &described) {
		if described.Detail != "" {
			fmt.Fprintf(w, "\n%s\n", described.Detail)
		}
		if described.Remedy != "" {
			fmt.Fprintf(w, "\n%s %s\n", s.Bold("What to do:"), described.Remedy)
		}
	}
	return exitFailed
}
