package main

import (
	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/diagnostic"
)

func newValidate(a *app) *cobra.Command {
	var (
		recipe recipeFlags
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "validate [FILE]",
		Short: "Check a recipe and report all errors at once",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			file, err := recipeFile(args)
			if err != nil {
				return err
			}
			opts, err := recipe.options(a, file)
			if err != nil {
				return err
			}
			r, diags := schema.Load(file, opts)
			if catalog, ok := opts.Plugins.(*host.Catalog); ok && r != nil {
				diags = append(diags, session.CheckCode(catalog, r)...)
			}
			if asJSON {
				err = view.DiagnosticsJSON(a.out, r, diags)
			} else {
				err = view.Validation(a.out, a.err, a.style(), a.errStyle(), r, diags)
			}
			if err != nil {
				return err
			}
			recipe.annotations.items = diagnostic.NewReport(diags, nil).Diagnostics
			if err := a.annotate(c.Context(), &recipe.annotations, file); err != nil {
				return err
			}
			return exitOf(diags)
		},
	}
	recipe.add(cmd)
	recipe.annotations.add(cmd)
	addJSON(cmd, &asJSON)
	return cmd
}
