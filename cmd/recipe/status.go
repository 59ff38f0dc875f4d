package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/board"
	"github.com/recipe-rl/recipe/engine/state"
)

func newStatus(a *app) *cobra.Command {
	var (
		file   string
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show where a run stands: phases, steps, reward, policy version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			dir, run, err := locateRun(file)
			if err != nil {
				return err
			}
			b, err := board.Read(dir.Events())
			if err != nil {
				return err
			}
			view.Complete(b, run)
			if asJSON {
				return view.StatusJSON(a.out, run, b, state.Holder(dir))
			}
			return view.Status(a.out, a.style(), run.Recipe, view.Standing(run, state.Holder(dir)), b, time.Now())
		},
	}
	addRun(cmd, &file)
	addJSON(cmd, &asJSON)
	return cmd
}
