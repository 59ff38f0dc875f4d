package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/internal/nearest"
	"github.com/recipe-rl/recipe/sdk"
)

func newOutput(a *app) *cobra.Command {
	var (
		file        string
		asJSON, raw bool
	)
	cmd := &cobra.Command{
		Use:   "output [NAME]",
		Short: "Print the outputs of a run, or one of them",
		Long: "Print the outputs of a run, or one of them: those that are known by now, while it goes on. A sensitive\n" +
			"output is stored nowhere. It is printed while the run goes on, when it is named.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, run, err := locateRun(file)
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
			if !o.Sensitive && o.Value == nil {
				return neverKnown(args[0])
			}
			if o.Sensitive {
				if o.Value, err = liveOutput(cmd.Context(), dir, args[0]); err != nil {
					return err
				}
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

// liveOutput asks the engine of a run for the value of a sensitive output.
func liveOutput(ctx context.Context, dir state.Dir, name string) (json.RawMessage, error) {
	client, err := session.Dial(ctx, dir)
	if errors.Is(err, session.ErrNoEngine) {
		return nil, fmt.Errorf("output %q is sensitive: its value is not stored, and known only while the run is live", name)
	}
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return client.Output(ctx, name)
}

// neverKnown reports that a run has ended without the value of an output.
func neverKnown(name string) error {
	return &sdk.Error{
		Summary: fmt.Sprintf("output %q has no value: the run ended before the blocks that it is made of were ready", name),
		Remedy:  "recipe status shows what became of them",
	}
}

// noOutput reports that a run has no such output: not yet, or not at all.
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
