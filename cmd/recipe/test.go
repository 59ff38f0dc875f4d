package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/doctor"
	"github.com/recipe-rl/recipe/engine/outfile"
	"github.com/recipe-rl/recipe/engine/recipetest"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/session"
)

// testFlags are what a person chose for one call of test.
type testFlags struct {
	recipe, match, junit string
	asJSON, noApply      bool
	trust                trustFlags
}

func newTest(a *app) *cobra.Command {
	var f testFlags
	cmd := &cobra.Command{
		Use:   "test [FILE|FOLDER]...",
		Short: "Run the tests of recipes (*.test.hcl)",
		Long: `Run the tests of recipes: each run of a NAME.test.hcl file plans or applies a recipe with its own variables,
in a temporary run directory, and its assertions are evaluated. Blocks can be replaced by small ones or mocked.
Nothing of a run is left. docs/testing.md describes the files.`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.test(cmd.Context(), args, &f) },
	}
	cmd.Flags().StringVarP(&f.recipe, "recipe", "r", "",
		"test this recipe `FILE` instead of those that the test files name")
	cmd.Flags().StringVar(&f.match, "run", "",
		"only runs whose FILE/NAME matches this `REGEXP`, and the runs that they continue")
	cmd.Flags().StringVar(&f.junit, "junit", "", "also write the results to a `FILE` as JUnit XML")
	addJSON(cmd, &f.asJSON)
	cmd.Flags().BoolVar(&f.noApply, "no-apply", false,
		"start no block: a run with command = apply is an error; for a recipe of somebody else, as in a pull request")
	f.trust.add(cmd)
	_ = cmd.MarkFlagFilename("recipe", "hcl")
	_ = cmd.MarkFlagFilename("junit", "xml")
	return cmd
}

func (a *app) test(ctx context.Context, args []string, f *testFlags) error {
	files, err := testFiles(args)
	if err != nil {
		return err
	}
	match, err := regexp.Compile(f.match)
	if err != nil {
		return fmt.Errorf("--run: %w", err)
	}
	if err := f.trust.into(a, f.recipe); err != nil {
		return err
	}
	catalog, err := a.catalog()
	if err != nil {
		return err
	}
	o := recipetest.Options{Plugins: catalog, Host: run.Processes{Catalog: catalog}, Environ: a.environ,
		Recipe: f.recipe, NoApply: f.noApply, Match: match, Sizing: session.Sizes(catalog, doctor.Hardware(ctx,
			a.machine("."))),
		CanRun: func() error { return doctor.CanRun(a.machine(".")) }}
	if !f.asJSON {
		o.Done = func(r *recipetest.Result) { view.TestResult(a.out, a.style(), r) }
	}
	report, err := recipetest.Run(ctx, files, o)
	if err != nil {
		return err
	}
	if report.Passed+report.Failed == 0 {
		return fmt.Errorf("no run matches --run %q", f.match)
	}
	if f.asJSON {
		err = view.JSON(a.out, report)
	} else {
		err = view.TestSummary(a.out, a.style(), report)
	}
	if f.junit != "" {
		err = errors.Join(err, writeJUnit(ctx, f.junit, report))
	}
	if err == nil && report.Failed > 0 {
		return exitError(exitFailed)
	}
	return err
}

func writeJUnit(ctx context.Context, path string, report *recipetest.Report) error {
	text, err := view.JUnit(report)
	if err == nil {
		err = outfile.Write(ctx, path, text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("write the JUnit file: %w", err)
	}
	return nil
}

// testFiles are the test files that a command means: those given, and those of the folders given or of this one.
func testFiles(args []string) ([]string, error) {
	if len(args) == 0 {
		args = []string{"."}
	}
	var files []string
	for _, arg := range args {
		info, err := os.Stat(arg)
		if err != nil {
			return nil, fmt.Errorf("find tests: %w", err)
		}
		if !info.IsDir() {
			if !strings.HasSuffix(arg, ".test.hcl") {
				return nil, fmt.Errorf("%s is not a test: expected a file NAME.test.hcl or a folder", arg)
			}
			files = append(files, arg)
			continue
		}
		found, err := filepath.Glob(filepath.Join(arg, "*.test.hcl"))
		if err != nil {
			return nil, fmt.Errorf("find tests: %w", err)
		}
		files = append(files, found...)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("there are no tests (*.test.hcl) in %s", strings.Join(args, ", "))
	}
	return files, nil
}
