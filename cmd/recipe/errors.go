package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/sdk"
)

// The exit codes of every command; docs/cli says the same.
const (
	exitDone    = 0
	exitFailed  = 1 // an error, or wrong arguments
	exitChanges = 2 // plan --detailed-exitcode: there are changes
	exitDenied  = 3 // a policy denied the plan
	exitStopped = 4 // apply: the run was stopped before its end; another apply continues it
	// exitUntrusted: the only errors are programs of the recipe that were not run, so that their blocks are not checked
	exitUntrusted = 5
)

// exitError exits with a code without printing; the error is already reported.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// exitOf is the exit code of a command that has reported diagnostics; nil: none of them is an error.
func exitOf(diags hcl.Diagnostics) error {
	switch {
	case diagnostic.OnlyUntrusted(diags):
		return exitError(exitUntrusted)
	case diags.HasErrors():
		return exitError(exitFailed)
	}
	return nil
}

// finish reports an error and returns the exit code: to machines, too, when they have asked for JSON.
func (a *app) finish(err error) int {
	if report, failed := failureOf(err); failed && a.json && !a.joined {
		if err := report.Write(a.out); err != nil && !gone(err) {
			fmt.Fprintln(a.err, "write the error as JSON:", err)
		}
	}
	return exitCode(err, a.err, a.errStyle())
}

// failureOf is the JSON form of an error that was not reported yet.
func failureOf(err error) (diagnostic.Report, bool) {
	if err == nil || errors.As(err, new(exitError)) {
		return diagnostic.Report{}, false
	}
	item := diagnostic.Item{Severity: "error", Summary: err.Error()}
	var described *sdk.Error
	if errors.As(err, &described) {
		item.Detail, item.Remedy = described.Detail, described.Remedy
	}
	if errors.Is(err, context.Canceled) {
		item = diagnostic.Item{Severity: "error", Summary: "interrupted"}
	}
	return diagnostic.Failure(item), true
}

// asksForJSON reports whether --json is among the arguments of a command, also of one that is refused for another.
func asksForJSON(args []string) bool {
	for _, arg := range args {
		if arg == "--" {
			return false
		}
		if value, ok := strings.CutPrefix(arg, "--json="); ok {
			on, err := strconv.ParseBool(value)
			return err != nil || on
		}
		if arg == "--json" {
			return true
		}
	}
	return false
}

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
	// The text may come from a registry or a cluster. Indented, none of its lines can pass for an error of this program.
	fmt.Fprintf(w, "%s %s\n", s.Red(s.Bold("Error:")), strings.ReplaceAll(err.Error(), "\n", "\n  "))
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
