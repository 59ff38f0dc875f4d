package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/state"
)

func newOutput(a *app) *cobra.Command {
	var (
		file        string
		asJSON, raw bool
	)
	cmd := &cobra.Command{
		Use:   "output [NAME]",
		Short: "Print the outputs of a run, or one of them",
		Long:  "Print the outputs of a run, or one of them. A sensitive output is never stored and cannot be printed.",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			_, run, err := locateRun(file)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				if asJSON {
					return view.JSON(a.out, run.Outputs)
				}
				return view.Outputs(a.out, "", run.Outputs)
			}
			o, ok := run.Outputs[args[0]]
			if !ok {
				yet := ""
				if run.Status == state.Running {
					yet = " yet"
				}
				return fmt.Errorf("the run has no output %q%s; recipe output lists its outputs", args[0], yet)
			}
			if o.Sensitive {
				return fmt.Errorf("output %q is sensitive: its value is not stored", args[0])
			}
			return view.OneOutput(a.out, o, asJSON, raw)
		},
	}
	addRun(cmd, &file)
	addJSON(cmd, &asJSON)
	cmd.Flags().BoolVar(&raw, "raw", false, "print a string without quotes, for scripts")
	cmd.MarkFlagsMutuallyExclusive("json", "raw")
	return cmd
}
