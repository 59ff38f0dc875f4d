package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/schema"
)

func newFork(a *app) *cobra.Command {
	var (
		recipe recipeFlags
		from   string
		step   int64
	)
	cmd := &cobra.Command{
		Use:   "fork FILE",
		Short: "Make a new run that continues a checkpoint of another",
		Long: `Make a new run that continues a checkpoint of another run, with a recipe of its own. FILE is that recipe; when it
does not exist, the recipe of the other run is copied there. Then change it, and look at the plan: trainers resume from
the checkpoint. The other run does not change, and nothing is started.

  recipe fork -r quickstart.hcl --at 100 slower.hcl
  recipe plan slower.hcl`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, run, err := locateRun(from)
			if err != nil {
				return err
			}
			if !cmd.Flags().Changed("at") {
				step = session.Newest
			}
			file, copied, err := forked(args[0], run.File, from)
			if err != nil {
				return err
			}
			opts, err := recipe.options(a)
			if err != nil {
				return err
			}
			r, diags := schema.Load(file, opts)
			err = a.diagnose(r, diags, false)
			if err == nil {
				continued, failed := session.Fork(dir, r, step)
				for _, c := range continued {
					fmt.Fprintf(a.out, "%s of %s continues from step %d.\n", c.Address, r.File, c.Step)
				}
				err = failed
			}
			if err != nil && copied {
				err = errors.Join(err, os.Remove(file))
			}
			if err == nil {
				fmt.Fprintf(a.out, "Next: change %s, then recipe plan %s\n", r.File, r.File)
			}
			return err
		},
	}
	recipe.add(cmd)
	addRun(cmd, &from)
	cmd.Flags().Int64Var(&step, "at", 0, "the `STEP` of the checkpoint; without it the newest one")
	return cmd
}

// forked is the recipe of a fork; it is copied from that of the other run when it is not there.
func forked(file, recorded, from string) (path string, copied bool, err error) {
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return file, false, err
	}
	if info, err := os.Stat(from); err == nil && !info.IsDir() {
		recorded = from
	}
	text, err := os.ReadFile(recorded)
	if err == nil {
		err = os.WriteFile(file, text, 0o644) //nolint:gosec // a recipe is for everyone who may see its folder
	}
	if err != nil {
		return "", false, fmt.Errorf("copy the recipe of the run to %s: %w", file, err)
	}
	return file, true, nil
}
