package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/private"
	"github.com/recipe-rl/recipe/schema/addr"
	envs "github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/kind"
)

func newEnvTasks(a *app) *cobra.Command {
	var (
		file   string
		asJSON bool
		n      int
	)
	cmd := &cobra.Command{
		Use:   "tasks [ADDRESS]",
		Short: "Show how well the policy solves the tasks of an environment",
		Long: `Show how well the policy solves the tasks of the environment at ADDRESS of a run: how many are always, sometimes
and never solved, and which are the hardest. A solve rate is the mean score of a task between the lowest and the highest
score of the environment; each newer group counts as much as all before it. ADDRESS may be left out if the run has one
environment.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			dir, run, err := locateRun(file)
			if err != nil {
				return err
			}
			address, err := environmentOf(args, run.Blocks)
			if err != nil {
				return err
			}
			path := filepath.Join(dir.Block(address), envs.SolveRatesFile)
			text, err := private.ReadFile(path, envs.MaxSolveRates)
			if errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%s has no solve rates: it has scored no group yet, or is none of recipe's SDK (%s)", address,
					path)
			}
			if err != nil {
				return err
			}
			rates, err := envs.ReadSolveRates(text)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if asJSON {
				return view.TasksJSON(a.out, address, rates)
			}
			return view.Tasks(a.out, a.style(), address, rates, n)
		},
	}
	addRun(cmd, &file)
	addJSON(cmd, &asJSON)
	cmd.Flags().IntVarP(&n, "n", "n", 10, "how many of the hardest tasks")
	return cmd
}

// environmentOf is the environment that an argument names, or the only one of a run.
func environmentOf[B any](args []string, blocks map[addr.Block]B) (addr.Block, error) {
	var all []addr.Block
	for b := range blocks {
		if b.Kind == kind.Environment {
			all = append(all, b)
		}
	}
	slices.SortFunc(all, func(a, b addr.Block) int { return strings.Compare(a.String(), b.String()) })
	if len(args) == 1 {
		address, err := addr.Parse(args[0])
		if err == nil && !slices.Contains(all, address) {
			err = fmt.Errorf("the run has no environment %s; it has %v", address, all)
		}
		return address, err
	}
	if len(all) != 1 {
		return addr.Block{}, fmt.Errorf("the run has %d environments: name one of %v", len(all), all)
	}
	return all[0], nil
}
