package main

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/reference"
)

// newDocs is hidden: `make docs` calls it.
func newDocs(a *app) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:    "docs",
		Short:  "Write the generated pages of docs/",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			plugins, err := a.everyPlugin("")
			if err != nil {
				return err
			}
			if err := reference.Commands(cmd.Root()).Write(filepath.Join(dir, "cli")); err != nil {
				return err
			}
			if err := reference.Blocks(plugins).Write(filepath.Join(dir, "blocks")); err != nil {
				return err
			}
			schemas, err := reference.Schemas()
			if err != nil {
				return err
			}
			if err := schemas.Write(filepath.Join(dir, "schemas")); err != nil {
				return err
			}
			page, err := reference.Compatibility(builtins())
			if err != nil {
				return err
			}
			if err := page.WriteOne(dir); err != nil {
				return err
			}
			index, err := reference.LLMs(dir, cmd.Root(), plugins)
			if err != nil {
				return err
			}
			return index.WriteOne(dir)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "docs", "the `FOLDER` to write to")
	return cmd
}
