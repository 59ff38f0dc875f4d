package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/engine/printable"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/engine/state"
)

func newClaim(a *app) *cobra.Command {
	var (
		file  string
		fresh bool
	)
	cmd := &cobra.Command{
		Use:   "claim",
		Short: "Turn a copied or moved run directory into a run of this folder",
		Long: `Turn a run directory that was copied or moved from another machine into a run of this folder. A run directory
records its location; commands reject a copy, because the processes in its record belong to the original.

A claimed run has a new id, and the next apply continues it from its copies of the checkpoints. With --new everything
except the checkpoints is removed, and apply starts a new run. Neither touches the original or its processes. A folder
that was moved on the same machine needs no claim.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, rec, err := locateRun(file)
			if err != nil {
				return err
			}
			belongs := run.Belongs(cmd.Context(), dir, run.Processes{})
			var foreign *state.ForeignError
			_, _, damaged := dir.Recorded()
			if !errors.As(belongs, &foreign) && damaged == nil {
				if belongs == nil {
					_, err = fmt.Fprintln(a.out, "The run already belongs to this folder; nothing was changed.")
					return err
				}
				return belongs
			}
			d, err := session.Claim(dir, fresh)
			if err != nil {
				return err
			}
			if !fresh {
				_, err = fmt.Fprintf(a.out, "The run in %s now belongs to this folder. Continue it with: %s\n", dir,
					session.Again(dir, recipePath(dir, rec)))
				return err
			}
			text := "The copied run was removed."
			if d.Checkpoints != "" {
				text += " Its checkpoints are in " + d.Checkpoints + "."
			}
			_, err = fmt.Fprintf(a.out, "%s recipe apply %s starts a new run.\n", text,
				printable.ShellWord(recipePath(dir, rec)))
			return err
		},
	}
	addRun(cmd, &file)
	cmd.Flags().BoolVar(&fresh, "new", false, "remove the copied run except its checkpoints")
	return cmd
}

// ownRun finds the run that an order means, and refuses one that was copied from elsewhere.
func (a *app) ownRun(cmd *cobra.Command, file string) (state.Dir, *state.Run, error) {
	dir, rec, err := locateRun(file)
	if err != nil {
		return "", nil, err
	}
	return dir, rec, session.Belongs(cmd.Context(), dir, run.Processes{})
}
