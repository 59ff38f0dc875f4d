package main

import (
	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/schema"
)

func newValidate(a *app) *cobra.Command {
	var (
		recipe recipeFlags
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "validate [FILE]",
		Short: "Check a recipe and report every mistake at once",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			file, err := recipeFile(args)
			if err != nil {
				return err
			}
			opts, err := recipe.options(a)
			if err != nil {
				return err
			}
			r, diags := schema.Load(file, opts)
			return a.validated(r, diags, asJSON)
		},
	}
	recipe.add(cmd)
	addJSON(cmd, &asJSON)
	return cmd
}
