package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/schema"
)

func newGraph(a *app) *cobra.Command {
	var (
		recipe recipeFlags
		format string
	)
	cmd := &cobra.Command{
		Use:   "graph [FILE]",
		Short: "Draw the start order of a recipe's blocks",
		Long: "Draw the start order of a recipe: an arrow points from a block to a block that must start first. For a " +
			"picture: recipe graph | dot -Tsvg > graph.svg",
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			file, err := recipeFile(args)
			if err != nil {
				return err
			}
			opts, err := recipe.options(a, file)
			if err != nil {
				return err
			}
			r, diags := schema.Load(file, opts)
			if err := a.diagnose(r, diags, false); err != nil {
				return err
			}
			return r.WriteGraph(a.out, format)
		},
	}
	recipe.add(cmd)
	cmd.Flags().StringVar(&format, "format", "dot", "one of "+strings.Join(schema.GraphFormats(), ", "))
	_ = cmd.RegisterFlagCompletionFunc("format",
		cobra.FixedCompletions(schema.GraphFormats(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
