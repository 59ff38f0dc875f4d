package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/sdk"
)

// stopFlags are the flags of one stop.
type stopFlags struct {
	file    string
	kill    bool
	noWait  bool
	timeout time.Duration
}

func newStop(a *app) *cobra.Command {
	var f stopFlags
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "Stop a run so that it can be continued",
		Long: `Stop a run so that it can be continued: jobs write a checkpoint and end, then services stop. recipe apply
continues from there.

It shows the progress and returns when everything has stopped: with exit code 0 when everything was stopped and saved,
else with 1 and the reasons. A run that has already ended is not an error. Ctrl-C and --timeout end only the waiting;
the stop continues.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, r, err := a.ownRun(cmd, f.file)
			if err != nil {
				return err
			}
			live, err := session.Dial(cmd.Context(), dir)
			var silent *session.SilentError
			switch {
			case errors.Is(err, session.ErrNoEngine):
				return a.withoutEngine(cmd.Context(), dir, err, r, f.kill)
			case errors.As(err, &silent) && f.kill:
				return a.lastResort(cmd.Context(), dir)
			case err != nil:
				return err
			}
			defer live.Close()
			if f.noWait {
				err := live.Stop(cmd.Context(), "recipe stop", f.kill)
				if errors.As(err, &silent) && f.kill {
					return a.lastResort(cmd.Context(), dir)
				}
				if err != nil {
					return err
				}
				_, err = fmt.Fprintln(a.out,
					"The run is stopping; recipe status shows the progress, and recipe apply continues the run.")
				return err
			}
			return a.stop(cmd.Context(), dir, live, &f)
		},
	}
	addRun(cmd, &f.file)
	cmd.Flags().BoolVar(&f.kill, "kill", false, "end every process at once, without a last checkpoint")
	cmd.Flags().BoolVar(&f.noWait, "no-wait", false, "return without waiting for the end")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 0,
		"maximum time to wait, for example 90s or 10m; then exit with 1 while the stop continues (default: no "+
			"limit)")
	cmd.MarkFlagsMutuallyExclusive("no-wait", "timeout")
	return cmd
}

// errWaited ends the waiting for a stop.
var errWaited = errors.New("timed out")

// stop stops a run and shows the progress until everything has stopped.
func (a *app) stop(ctx context.Context, dir state.Dir, live *session.Client, f *stopFlags) error {
	text := view.StoppingText
	if f.kill {
		text = view.KillingText
	}
	if _, err := fmt.Fprintln(a.out, text); err != nil {
		return err
	}
	waiting := ctx
	if f.timeout > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeoutCause(ctx, f.timeout, errWaited)
		defer cancel()
	}
	err := session.Stop(waiting, dir, live, "recipe stop", f.kill, view.Stopping(a.out, a.style()))
	var silent *session.SilentError
	switch {
	case errors.As(err, &silent) && f.kill:
		return a.lastResort(ctx, dir)
	case errors.Is(err, errWaited) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return unfinished(dir, f)
	case errors.Is(err, session.ErrNoEngine):
		r, failed := state.Read(dir)
		if failed != nil {
			return errors.Join(err, failed)
		}
		return a.withoutEngine(ctx, dir, err, r, f.kill)
	case err != nil:
		return err
	}
	rec, err := state.Read(dir)
	if err != nil {
		return err
	}
	text = "The run is " + string(rec.Status) + "."
	if rec.Status == state.Stopped {
		text += continued(dir, rec)
	}
	_, err = fmt.Fprintln(a.out, text)
	return err
}

// continued is how a stopped run is continued, as the last words of a message.
func continued(dir state.Dir, rec *state.Run) string {
	file := recipePath(dir, rec)
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return fmt.Sprintf(" Its recipe file %s is gone: a file in that folder with recipe { name = %q } continues it.", file,
			rec.Recipe)
	}
	return " Continue it with: " + session.Again(dir, file)
}

// unfinished lists what a stop still waits for when the command no longer waits for the stop.
func unfinished(dir state.Dir, f *stopFlags) error {
	why := "interrupted"
	if f.timeout > 0 {
		why = fmt.Sprintf("timed out after %s", f.timeout)
	}
	var open []string
	if rec, err := state.Read(dir); err == nil {
		for a, b := range rec.Blocks {
			if !sdk.Phase(b.Phase).Over() {
				open = append(open, fmt.Sprintf("%s is %s", a, b.Phase))
			}
		}
	}
	e := &sdk.Error{
		Summary: why + ": the run is not stopped yet; the stop continues",
		Remedy: "recipe stop waits again; recipe status shows the progress; recipe stop --kill ends everything at once, " +
			"without a last checkpoint",
	}
	if len(open) > 0 {
		e.Detail = strings.Join(slices.Sorted(slices.Values(open)), "\n")
	}
	return e
}

// withoutEngine gives the reason why there is nothing to stop, and a remedy for a run that continues without an engine,
// whose processes --kill ends. A run that has ended is no error: stop may be repeated.
func (a *app) withoutEngine(ctx context.Context, dir state.Dir, err error, r *state.Run, kill bool) error {
	catalog, failed := a.catalog()
	if failed != nil {
		return failed
	}
	left := session.Leftovers(ctx, dir, run.Processes{Catalog: catalog})
	if kill && state.Holder(dir) == nil && (len(left) > 0 || r.Status == state.Running) {
		return a.lastResort(ctx, dir)
	}
	if r.Status == state.New {
		_, werr := fmt.Fprintln(a.out, "This run was never started, or it was destroyed; there is nothing to stop.")
		return werr
	}
	if r.Status != state.Running {
		_, werr := fmt.Fprintf(a.out, "The run is %s; there is nothing to stop.\n", r.Status)
		return werr
	}
	e := &sdk.Error{
		Summary: "its engine was killed", Err: err,
		Remedy: session.Again(dir, recipePath(dir, r)) +
			" adopts the live processes, so that recipe stop can end them at a checkpoint; recipe stop --kill ends them at " +
			"once (after apply --detach they never end by themselves, else within " +
			fmt.Sprintf("%.0f minutes)", run.DefaultLease.Minutes()),
	}
	if len(left) == 0 {
		e.Remedy = session.Again(dir, recipePath(dir, r)) + " continues the run; recipe stop --kill only records that it " +
			"is stopped: none of its processes is left"
		return e
	}
	e.Detail = "These still run: " + session.Named(left)
	return e
}

// lastResort ends a run without its engine.
func (a *app) lastResort(ctx context.Context, dir state.Dir) error {
	catalog, err := a.catalog()
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(a.out, "Its engine does not answer: every process is ended without it."); err != nil {
		return err
	}
	left, err := session.KillWithout(ctx, dir, run.Processes{Catalog: catalog}, "recipe stop --kill")
	if err != nil {
		return &sdk.Error{Summary: "not everything was ended", Err: err, Remedy: "recipe stop --kill tries again"}
	}
	text := "The run is stopped."
	if rec, err := state.Read(dir); err == nil {
		text += continued(dir, rec)
	}
	if len(left) > 0 {
		text = "Ended: " + session.Named(left) + ".\n" + text
	}
	_, err = fmt.Fprintln(a.out, text)
	return err
}
