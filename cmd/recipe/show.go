package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/schema/addr"
)

func newShow(a *app) *cobra.Command {
	var (
		file   string
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "show [ADDRESS]",
		Short: "Show the record of a run, or of one of its blocks",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			dir, run, err := locateRun(file)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				if asJSON {
					return view.JSON(a.out, run)
				}
				return view.Record(a.out, a.style(), string(dir), run)
			}
			address, err := addr.Parse(args[0])
			if err != nil {
				return err
			}
			block := run.Blocks[address]
			if block == nil {
				return fmt.Errorf("the run has no block %s; recipe status lists its blocks", address)
			}
			if asJSON {
				return view.JSON(a.out, block)
			}
			return view.RecordedBlock(a.out, a.style(), address, block)
		},
	}
	addRun(cmd, &file)
	addJSON(cmd, &asJSON)
	return cmd
}
