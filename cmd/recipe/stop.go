package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/sdk"
)

func newStop(a *app) *cobra.Command {
	var (
		file string
		kill bool
	)
	cmd := &cobra.Command{
		Use:   "stop",
		Short: "Stop a run where it can go on later",
		Long:  "Stop a run where it can go on later: jobs write a checkpoint and end, then services stop. recipe apply goes on from there.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, r, err := locateRun(file)
			if err != nil {
				return err
			}
			live, err := session.Dial(cmd.Context(), dir)
			if errors.Is(err, session.ErrNoEngine) {
				return nothingToStop(err, r)
			}
			if err != nil {
				return err
			}
			defer live.Close()
			if err := live.Stop(cmd.Context(), "recipe stop", kill); err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.out, "The run is being stopped; recipe status shows how far that is, and recipe apply goes on with it.")
			return err
		},
	}
	addRun(cmd, &file)
	cmd.Flags().BoolVar(&kill, "kill", false, "end every process at once, without a last checkpoint")
	return cmd
}

// nothingToStop says why, and what can be done about a run that goes on by itself.
func nothingToStop(err error, r *state.Run) error {
	if r.Status != state.Running {
		return fmt.Errorf("%w: it is %s, there is nothing to stop", err, r.Status)
	}
	return &sdk.Error{
		Summary: "its engine was killed", Err: err,
		Remedy: "recipe apply " + r.File + " takes over what is still alive, and then it can be stopped where it can go on; left alone, its processes end themselves within " + run.DefaultLease.String() + " (recipe destroy ends them at once, and forgets the run)",
	}
}
