package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/schema/addr"
)

func newRestart(a *app) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "restart ADDRESS",
		Short: "Restart one block of a live run",
		Long: "Restart one block of a live run. An inference block loads the current policy version before it serves; " +
			"a trainer continues from its newest checkpoint.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			address, err := addr.Parse(args[0])
			if err != nil {
				return err
			}
			return a.withEngine(cmd, file, func(live *session.Client) error {
				if err := live.Restart(cmd.Context(), address); err != nil {
					return err
				}
				_, err := fmt.Fprintf(a.out, "%s is restarting; recipe logs -f %s shows its progress.\n", address,
					address)
				return err
			})
		},
	}
	addRun(cmd, &file)
	return cmd
}

// withEngine connects to the engine of a run for the time of do.
func (a *app) withEngine(cmd *cobra.Command, file string, do func(*session.Client) error) error {
	dir, _, err := a.ownRun(cmd, file)
	if err != nil {
		return err
	}
	live, err := session.Dial(cmd.Context(), dir)
	if err != nil {
		return err
	}
	defer live.Close()
	return do(live)
}
