package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/engine/printable"
	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
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
	dir, rec, err := a.ownRun(cmd, file)
	if err != nil {
		return err
	}
	live, err := session.Dial(cmd.Context(), dir)
	if errors.Is(err, session.ErrNoEngine) {
		return notLive(cmd, dir, rec)
	}
	if err != nil {
		return err
	}
	defer live.Close()
	return do(live)
}

// notLive explains why a command cannot do anything with a run, and what can.
func notLive(cmd *cobra.Command, dir state.Dir, rec *state.Run) error {
	file := printable.ShellWord(recipePath(dir, rec))
	e := &sdk.Error{Summary: fmt.Sprintf("the run is %s: there is nothing to %s", rec.Status, cmd.Name())}
	switch rec.Status {
	case state.Running:
		e.Summary = "the run cannot be reached: its engine was killed"
		e.Remedy = session.Again(dir, recipePath(dir, rec)) + " adopts the live processes; then try again"
	case state.Completed:
		e.Remedy = "recipe show has its record; with more steps in " + file + ", recipe apply continues it"
	default:
		e.Remedy = session.Again(dir, recipePath(dir, rec)) + " starts it again"
	}
	return e
}
