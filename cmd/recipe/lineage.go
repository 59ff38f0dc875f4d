package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/evaluation"
	"github.com/recipe-rl/recipe/engine/lineage"
	"github.com/recipe-rl/recipe/engine/snapshot"
	"github.com/recipe-rl/recipe/engine/state"
)

func newLineage(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "lineage [RUN|CHECKPOINT]",
		Short: "Show what a run or a checkpoint comes from",
		Long: `Show what a run or a checkpoint comes from: recipe, plugins and their versions, models, files,
Python packages, machine.
RUN is a recipe file, its folder or a run directory; CHECKPOINT is the path of a checkpoint.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			path := ""
			if len(args) > 0 {
				path = args[0]
			}
			l, _, err := lineageOf(path)
			if err != nil {
				return err
			}
			if asJSON {
				return view.JSON(a.out, l)
			}
			return view.Lineage(a.out, a.style(), l)
		},
	}
	addJSON(cmd, &asJSON)
	return cmd
}

func newDiff(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "diff RUN RUN",
		Short: "Show what differs between two runs",
		Long: `Show what differs between two runs: recipe, plugins and versions, models and files, Python packages, machine,
the last value of each metric, and the newest results of the evaluation blocks that both have, task by task. A run is
a recipe file, its folder, a run directory or a checkpoint; of a checkpoint there are no metrics and no evaluations.`,
		Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			var of [2]*lineage.Lineage
			var metrics [2]map[string]map[string]float64
			var dirs [2]string
			for i, arg := range args {
				l, dir, err := lineageOf(arg)
				if err != nil {
					return err
				}
				of[i], dirs[i] = l, string(dir)
				if metrics[i], err = lastMetrics(dir); err != nil {
					return err
				}
			}
			c := lineage.Compare(of[0], of[1])
			c.CompareMetrics(metrics[0], metrics[1])
			if dirs[0] != "" && dirs[1] != "" { // else one is a checkpoint
				pairs, err := evaluation.Newest(dirs[0], dirs[1])
				if err != nil {
					return err
				}
				c.Evaluations = pairs
			}
			if asJSON {
				return view.JSON(a.out, c)
			}
			if err := view.Comparison(a.out, a.style(), args, c); err != nil {
				return err
			}
			return view.EvaluationPairs(a.out, a.style(), c.Evaluations, 5)
		},
	}
	addJSON(cmd, &asJSON)
	return cmd
}

// lineageOf finds the lineage that an argument means, and the run directory when it means a run. An empty argument is
// the only run here.
func lineageOf(arg string) (*lineage.Lineage, state.Dir, error) {
	candidates := []string{arg}
	if arg != "" {
		candidates = append(candidates, lineage.Beside(arg))
	}
	for _, path := range candidates {
		if filepath.Base(path) != lineage.FileName && path == arg {
			continue
		}
		l, err := lineage.Read(path)
		if err == nil {
			dir := state.Dir("")
			if l.Checkpoint == nil {
				dir = state.Dir(filepath.Dir(path))
			}
			return l, dir, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return nil, "", err
		}
	}
	dir, run, err := locateRun(arg)
	if errors.Is(err, errNoRun) && arg != "" {
		return nil, "", fmt.Errorf("%s is neither a run nor a checkpoint with a lineage: expected a recipe file, its "+
			"folder, a run directory (.recipe/NAME) or the path of a checkpoint", arg)
	}
	if err != nil {
		return nil, "", err
	}
	l, err := lineage.Read(filepath.Join(string(dir), lineage.FileName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, "", fmt.Errorf("the run of %s has no lineage: it was applied by an older version; recipe apply writes it",
			run.File)
	}
	return l, dir, err
}

// lastMetrics are the last values of the metrics of a run, by block; none without a run directory.
func lastMetrics(dir state.Dir) (map[string]map[string]float64, error) {
	if dir == "" {
		return nil, nil
	}
	snap, err := snapshot.Read(dir.Events())
	if err != nil {
		return nil, err
	}
	out := map[string]map[string]float64{}
	for address, b := range snap.Blocks {
		out[address] = b.Metrics
	}
	return out, nil
}
