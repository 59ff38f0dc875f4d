package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/doctor"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/schema"
)

func newDoctor(a *app) *cobra.Command {
	var (
		recipe           recipeFlags
		asJSON           bool
		bundle, executor string
	)
	cmd := &cobra.Command{
		Use:   "doctor [FILE]",
		Short: "Check this machine and a recipe, and say what is missing and what to do",
		Long: `Check this machine and, if named, a recipe, and say what is missing and what to do. It changes nothing. For
the blocks of a recipe it checks their Python packages, their GPUs, a sandbox that they name, their models, scripts and
files, and the store of their checkpoints: from this machine, by a small object that it removes again. The exit code is
1 when a check failed; warnings concern things that only some recipes need, or that cannot be checked locally.

--executor asks the cluster of an executor block whether it answers, what its partition has, and whether it would take
the jobs of the blocks that run there. Nothing is submitted.

--bundle writes an archive for those who help: the findings, the recipe, the record, events and logs of its run, without
secrets and without what was sampled. Look through it before you send it.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = filepath.Dir(args[0])
			}
			if executor != "" && len(args) == 0 {
				return errors.New("--executor names a block of a recipe: recipe doctor FILE --executor slurm.NAME")
			}
			redacted := func(text string) string { return text }
			local := a.machine(dir)
			local.Allow = a.gate().Allow
			local.Agent = knownAgent
			findings := doctor.Examine(cmd.Context(), local)
			if executor != "" {
				findings = nil
			}
			if len(args) > 0 {
				opts, err := recipe.options(a, args[0])
				if err != nil {
					return err
				}
				r, diags := schema.Load(args[0], opts)
				redacted = r.Redacted()
				findings = append(findings, doctor.Recipe(args[0], r, diags))
				if !diags.HasErrors() {
					catalog, err := a.catalog()
					if err != nil {
						return err
					}
					if executor == "" {
						findings = append(findings, doctor.Blocks(cmd.Context(), local, args[0], r,
							packagesOf(catalog))...)
					} else {
						found, err := executorFindings(cmd.Context(), run.Processes{Catalog: catalog}, r, executor)
						if err != nil {
							return err
						}
						findings = append(findings, found...)
					}
				}
			}
			for i, f := range findings {
				findings[i].Found, findings[i].Remedy = redacted(f.Found), redacted(f.Remedy)
			}
			var err error
			if asJSON {
				err = view.FindingsJSON(a.out, findings)
			} else {
				err = view.Findings(a.out, a.style(), findings)
			}
			if err != nil {
				return fmt.Errorf("write the findings: %w", err)
			}
			if bundle != "" {
				file := ""
				if len(args) > 0 {
					file = args[0]
				}
				if err := a.writeBundle(cmd.Context(), bundle, file, a.loadForBundle(&recipe, file), findings); err != nil {
					return err
				}
			}
			if doctor.Failed(findings) {
				return exitError(exitFailed)
			}
			return nil
		},
	}
	recipe.add(cmd)
	addJSON(cmd, &asJSON)
	cmd.Flags().StringVar(&executor, "executor", "", "check the cluster of this `executor` of the recipe instead of "+
		"this machine, such as slurm.gpu")
	cmd.Flags().StringVar(&bundle, "bundle", "", "write a support bundle to this `FILE` (.tar.gz), without secrets")
	return cmd
}
