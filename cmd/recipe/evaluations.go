package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/evaluation"
)

func newEvaluations(a *app) *cobra.Command {
	var (
		file   string
		asJSON bool
		step   int64
		flips  int
	)
	cmd := &cobra.Command{
		Use:   "evaluations [NAME]",
		Short: "Show the results of a run's evaluation blocks",
		Long: `Show the results of a run's evaluation blocks, or of the one of that NAME: each result with its interval and the
change since the baseline, and the tasks that only one of the two solved, each with a completion of both. recipe diff
compares the evaluations of two runs.`,
		Example: `  recipe evaluations -r recipes/held-out.hcl
  recipe evaluations held_out --step 100 --flips 20`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			dir, run, err := locateRun(file)
			if err != nil {
				return err
			}
			root, err := filepath.Abs(string(dir))
			if err != nil {
				return err
			}
			reader := evaluation.NewReader(root)
			names, err := reader.Names()
			if err != nil {
				return err
			}
			if len(args) == 1 && !slices.Contains(names, args[0]) || len(names) == 0 {
				return fmt.Errorf("the run has no results of such an evaluation; it has %s", orNone(names))
			}
			if len(args) == 1 {
				names = args
			}
			out := []evaluation.History{}
			for _, name := range names {
				one, err := reader.History(name, step)
				if err != nil {
					return err
				}
				out = append(out, one)
			}
			if asJSON {
				return view.JSON(a.out, out)
			}
			return view.EvaluationResults(a.out, a.style(), run, out, flips)
		},
	}
	addRun(cmd, &file)
	addJSON(cmd, &asJSON)
	cmd.Flags().Int64Var(&step, "step", evaluation.NewestResult,
		"compare the result of this `STEP` with the baseline (default: the newest)")
	cmd.Flags().IntVar(&flips, "flips", 5, "show at most `N` tasks that only one of both solved, of each direction")
	return cmd
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
