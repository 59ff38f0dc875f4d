package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/doctor"
)

func newDoctor(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look at this machine and say what is wrong and what to do about it",
		Long:  "Look at this machine and say what is wrong and what to do about it. Looking changes nothing. The exit code is 1 when no recipe can run here.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			findings := doctor.Examine(cmd.Context(), doctor.Local("."))
			var err error
			if asJSON {
				err = view.FindingsJSON(a.out, findings)
			} else {
				err = view.Findings(a.out, a.style(), findings)
			}
			if err != nil {
				return fmt.Errorf("writing the findings: %w", err)
			}
			if doctor.Failed(findings) {
				return exitError(exitFailed)
			}
			return nil
		},
	}
	addJSON(cmd, &asJSON)
	return cmd
}
