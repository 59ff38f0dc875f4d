package main

import (
	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
)

func newPlan(a *app) *cobra.Command {
	var (
		recipe   recipeFlags
		targets  []string
		asJSON   bool
		detailed bool
		out      string
	)
	cmd := &cobra.Command{
		Use:   "plan [FILE]",
		Short: "Show what apply would do, and why",
		Long: `Show what apply would do with each block, and why: compares the recipe with the record of the run and with
its live processes. It starts nothing, changes nothing and needs neither network nor GPU.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := a.open(cmd.Context(), &recipe, args, targets, asJSON)
			if err != nil {
				return err
			}
			p, err := s.Plan(cmd.Context())
			if err != nil {
				return err
			}
			if out != "" {
				if err := s.SaveAs(out, p); err != nil {
					return err
				}
			}
			if asJSON {
				err = view.JSON(a.out, p)
			} else {
				err = view.Plan(a.out, a.style(), p)
			}
			switch {
			case err != nil:
				return err
			case len(p.Errors()) > 0:
				return exitError(exitFailed)
			case detailed && p.Changes():
				return exitError(exitChanges)
			}
			return nil
		},
	}
	recipe.add(cmd)
	addTarget(cmd, &targets)
	addJSON(cmd, &asJSON)
	cmd.Flags().StringVarP(&out, "out", "o", "", "save the plan in this file, for apply --plan")
	cmd.Flags().BoolVar(&detailed, "detailed-exitcode", false,
		"exit with 2 if there are changes, 0 if there are none")
	return cmd
}
