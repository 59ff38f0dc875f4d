package main

import (
	"github.com/spf13/cobra"

	engineagent "github.com/recipe-rl/recipe/engine/agent"
)

// newAgentCommand is the command that an executor runs on the machine of a job.
func newAgentCommand(a *app) *cobra.Command {
	var bootstrap string
	cmd := &cobra.Command{
		Use:    "agent --bootstrap FILE",
		Short:  "Run a block on this machine for an engine elsewhere; executors start it",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := engineagent.ReadBootstrap(bootstrap)
			if err != nil {
				return err
			}
			return engineagent.Run(cmd.Context(), b, a.err)
		},
	}
	cmd.Flags().StringVar(&bootstrap, "bootstrap", "", "the `FILE` that the engine has written")
	if err := cmd.MarkFlagRequired("bootstrap"); err != nil {
		panic(err)
	}
	return cmd
}
