package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/build"
	"github.com/recipe-rl/recipe/cmd/recipe/view"
)

func newVersion(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit and the platform",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			info := build.Read()
			if asJSON {
				return view.JSON(a.out, info)
			}
			_, err := fmt.Fprintln(a.out, info)
			return err
		},
	}
	addJSON(cmd, &asJSON)
	return cmd
}
