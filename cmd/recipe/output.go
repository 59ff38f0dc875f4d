package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/nearest"
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
				return noOutput(run, args[0])
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

// noOutput says that a run has no such output: not yet, or not at all.
func noOutput(run *state.Run, name string) error {
	yet := ""
	if run.Status == state.Running {
		yet = " yet"
	}
	return &sdk.Error{
		Summary: fmt.Sprintf("the run has no output %q%s", name, yet),
		Remedy:  didYouMean(nearest.Name(name, slices.Sorted(maps.Keys(run.Outputs)))) + "recipe output lists its outputs",
	}
}
