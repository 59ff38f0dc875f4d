package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/engine/session"
)

func newPause(a *app) *cobra.Command {
	return newPauseOrResume(a, true, &cobra.Command{
		Use:   "pause",
		Short: "Pause a live run; its processes keep running",
		Long: "Pause a live run. Inference holds new requests and lets those in flight end, trainers wait before their " +
			"next step. Nothing is lost, and no memory is given back: use recipe stop for that. Returns when the step in " +
			"progress has ended. Rollouts that wait for longer than their environment allows begin anew after it.",
	}, "paused; recipe resume continues it.\n")
}

func newResume(a *app) *cobra.Command {
	return newPauseOrResume(a, false, &cobra.Command{
		Use:   "resume",
		Short: "Continue a paused run",
		Long:  "Continue a run that recipe pause has paused. A run that was stopped is continued by recipe apply.",
	}, "resumed.\n")
}

func newPauseOrResume(a *app, paused bool, cmd *cobra.Command, done string) *cobra.Command {
	var file string
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withEngine(cmd, file, func(live *session.Client) error {
			if err := live.Pause(cmd.Context(), paused); err != nil {
				return err
			}
			_, err := fmt.Fprint(a.out, done)
			return err
		})
	}
	addRun(cmd, &file)
	return cmd
}
