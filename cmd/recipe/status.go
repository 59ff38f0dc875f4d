package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/board"
	enginerun "github.com/recipe-rl/recipe/engine/run"
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, run, err := locateRun(file)
			if err != nil {
				return err
			}
			b, err := board.Read(dir.Events())
			if err != nil {
				return err
			}
			view.Complete(b, run)
			standing := view.Standing(run, state.Holder(dir))
			foreign := foreignTo(cmd, dir)
			if foreign != nil {
				standing = view.Elsewhere
			}
			if asJSON {
				return view.StatusJSON(a.out, run, b, state.Holder(dir), foreign)
			}
			if err := view.Status(a.out, a.style(), run.Recipe, standing, b, time.Now()); err != nil {
				return err
			}
			return view.Foreign(a.out, a.style(), foreign)
		},
	}
	addRun(cmd, &file)
	addJSON(cmd, &asJSON)
	return cmd
}

// foreignTo says why a run directory does not belong where it lies, or nil.
func foreignTo(cmd *cobra.Command, dir state.Dir) *state.ForeignError {
	var foreign *state.ForeignError
	if errors.As(enginerun.Belongs(cmd.Context(), dir, enginerun.Processes{}), &foreign) {
		return foreign
	}
	return nil
}
