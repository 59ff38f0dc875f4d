package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/session"
)

func newDestroy(a *app) *cobra.Command {
	var (
		file        string
		approve     bool
		checkpoints bool
	)
	cmd := &cobra.Command{
		Use:   "destroy",
		Short: "End every process of a run and remove it",
		Long: `End every process of a run and remove its record, events, logs and queued groups. Checkpoints are kept,
unless --checkpoints is set.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, rec, err := a.ownRun(cmd, file)
			if err != nil {
				return err
			}
			catalog, err := a.catalog()
			if err != nil {
				return err
			}
			if err := session.Removable(dir, checkpoints); err != nil {
				return err
			}
			if err := view.Destroying(a.out, a.style(), string(dir), rec, checkpoints); err != nil {
				return err
			}
			if err := a.approve(cmd.Context(), approve, "End and remove this run?",
				"check with recipe status that it is the run to remove"); err != nil {
				return err
			}
			d, err := session.Destroy(cmd.Context(), dir, run.Processes{Catalog: catalog}, checkpoints)
			if err != nil {
				return err
			}
			gone := "The run was removed."
			if d.Ended > 0 { // those of a live engine were ended by it
				gone = fmt.Sprintf("The run was removed; %d processes without an engine were ended.", d.Ended)
			}
			if _, err := fmt.Fprintln(a.out, gone); err != nil {
				return err
			}
			if d.Checkpoints != "" {
				_, err = fmt.Fprintf(a.out, "Its checkpoints are still in %s.\n", d.Checkpoints)
			}
			if len(d.Unsynced) > 0 && err == nil {
				_, err = fmt.Fprintf(a.out, "Kept, as W&B does not have them: pass these on with wandb sync, then remove them.\n"+
					"  %s\n", strings.Join(d.Unsynced, "\n  "))
			}
			return err
		},
	}
	addRun(cmd, &file)
	cmd.Flags().BoolVarP(&approve, "auto-approve", "y", false, "do not ask")
	cmd.Flags().BoolVar(&checkpoints, "checkpoints", false, "remove the checkpoints as well")
	return cmd
}
