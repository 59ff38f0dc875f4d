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
			dir, _, err := locateRun(file)
			if err != nil {
				return err
			}
			root, err := filepath.Abs(string(dir))
			if err != nil {
				return err
			}
			names, err := evaluation.Names(root)
			if err != nil {
				return err
			}
			if len(args) == 1 && !slices.Contains(names, args[0]) || len(names) == 0 {
				return fmt.Errorf("the run has no results of such an evaluation; it has %s", orNone(names))
			}
			if len(args) == 1 {
				names = args
			}
			out := []view.Evaluations{}
			for _, name := range names {
				one, err := resultsOf(root, name, step)
				if err != nil {
					return err
				}
				out = append(out, one)
			}
			if asJSON {
				return view.JSON(a.out, out)
			}
			return view.EvaluationResults(a.out, a.style(), out, flips)
		},
	}
	addRun(cmd, &file)
	addJSON(cmd, &asJSON)
	cmd.Flags().Int64Var(&step, "step", -1, "compare the result of this `STEP` with the baseline (default: the newest)")
	cmd.Flags().IntVar(&flips, "flips", 5, "show at most `N` tasks that only one of both solved, of each direction")
	return cmd
}

// resultsOf are the results of one evaluation block, the one of a step compared with the first; -1: the newest.
func resultsOf(root, name string, step int64) (view.Evaluations, error) {
	out := view.Evaluations{Name: name}
	var err error
	if out.Results, err = evaluation.Results(root, name); err != nil {
		return out, err
	}
	at := len(out.Results) - 1
	if step >= 0 {
		at = slices.IndexFunc(out.Results, func(r *evaluation.Result) bool { return r.Step == step || r.Due == step })
		if at < 0 {
			return out, fmt.Errorf("evaluation %s has no result of step %d; recipe evaluations %s lists them", name, step,
				name)
		}
	}
	if at > 0 {
		out.Change, err = evaluation.Between(root, out.Results[0], root, out.Results[at])
	}
	return out, err
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
