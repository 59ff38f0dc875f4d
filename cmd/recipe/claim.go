package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

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
		Short: "Make a copied or moved run directory a run of this folder's own",
		Long: `Make a run directory that was copied or brought from another machine a run of this folder's own. A run
directory says where it was made; commands refuse one that lies elsewhere, because the processes in its record belong
to the original.

A claimed run has an id of its own and goes on, with the next apply, from the checkpoints that lie here. With --new
everything but the checkpoints is forgotten, and apply begins anew. Neither touches the original or a process of it. A
folder that was moved on the same machine needs no claim.`,
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
					_, err = fmt.Fprintln(a.out, "The run belongs to this folder already; nothing was changed.")
					return err
				}
				return belongs
			}
			d, err := session.Claim(dir, fresh)
			if err != nil {
				return err
			}
			if !fresh {
				_, err = fmt.Fprintf(a.out,
					"The run in %s is this folder's own now. recipe apply %s goes on with it.\n", dir,
					shellWord(rec.File))
				return err
			}
			text := "The copied run is forgotten."
			if d.Checkpoints != "" {
				text += " Its checkpoints are in " + d.Checkpoints + "."
			}
			_, err = fmt.Fprintf(a.out, "%s recipe apply %s begins anew.\n", text, shellWord(rec.File))
			return err
		},
	}
	addRun(cmd, &file)
	cmd.Flags().BoolVar(&fresh, "new", false, "forget the copied run, all but its checkpoints")
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
