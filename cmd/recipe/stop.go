package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/engine/session"
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
			dir, run, err := locateRun(file)
			if err != nil {
				return err
			}
			live, err := session.Dial(cmd.Context(), dir)
			if errors.Is(err, session.ErrNoEngine) {
				return fmt.Errorf("%w (it is %s); when processes of it are left, recipe destroy ends them", err, run.Status)
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
