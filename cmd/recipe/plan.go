package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/printable"
	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// planFlags are what a person chose for one plan.
type planFlags struct {
	recipe   recipeFlags
	policy   planPolicies
	targets  []string
	asJSON   bool
	markdown bool
	detailed bool
	out      string
}

func newPlan(a *app) *cobra.Command {
	var f planFlags
	cmd := &cobra.Command{
		Use:   "plan [FILE]",
		Short: "Show what apply would do, and why",
		Long: `Show what apply would do with each block, and why: compares the recipe with the record of the run and with
its live processes. It starts no block, changes nothing and needs neither network nor GPU.

Policies are asked about the plan; a plan that one denies cannot be applied. docs/ci.md shows plans in CI.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.plan(cmd, args, &f) },
	}
	f.recipe.add(cmd)
	f.recipe.annotations.add(cmd)
	f.policy.add(cmd)
	addTarget(cmd, &f.targets)
	addFromScratch(cmd, &f.recipe)
	addJSON(cmd, &f.asJSON)
	cmd.Flags().BoolVar(&f.markdown, "markdown", false, "print Markdown, for a comment of a pull request")
	cmd.Flags().StringVarP(&f.out, "out", "o", "", "save the plan in this file, for apply --plan")
	cmd.Flags().BoolVar(&f.detailed, "detailed-exitcode", false,
		"exit with 2 if there are changes, 0 if there are none")
	cmd.MarkFlagsMutuallyExclusive("json", "markdown")
	return cmd
}

func (a *app) plan(cmd *cobra.Command, args []string, f *planFlags) error {
	file, err := recipeFile(args)
	if err != nil {
		return err
	}
	found := &f.recipe.annotations
	s, err := a.open(cmd.Context(), &f.recipe, args, f.targets, f.asJSON)
	if err != nil {
		if f.markdown && found.hasErrors() {
			if err := view.MarkdownErrors(a.out, file, found.items); err != nil {
				return err
			}
		}
		if err := a.annotate(cmd.Context(), found, file); err != nil {
			return err
		}
		return err
	}
	p, _, err := f.policy.plan(cmd.Context(), a, s)
	if err != nil {
		return err
	}
	for _, item := range found.items {
		if item.Untrusted != nil {
			p.Untrusted = append(p.Untrusted, *item.Untrusted)
		}
	}
	found.findings(p)
	notOpened(p, s.Recipe, file)
	if a.planned != nil {
		a.planned(p)
	}
	if f.out != "" {
		if err := s.SaveAs(cmd.Context(), f.out, p); err != nil {
			return err
		}
	}
	if err := f.show(a, p); err != nil {
		return err
	}
	if err := a.annotate(cmd.Context(), found, file); err != nil {
		return err
	}
	switch {
	case p.Denied():
		return exitError(exitDenied)
	case len(p.Errors()) > 0:
		return exitError(exitFailed)
	case f.detailed && p.Changes():
		return exitError(exitChanges)
	}
	return nil
}

// notOpened tells of new environments with code or packages of the recipe's choice. A plan starts no block, and so
// finds nothing of what only opening them shows.
func notOpened(p *plan.Plan, r *schema.Recipe, file string) {
	for _, op := range p.Operations {
		b := r.Lookup(op.Address)
		if op.Action != plan.Create || op.Address.Kind != kind.Environment || b == nil || !session.BringsCode(b) ||
			len(p.Errors()) > 0 {
			continue
		}
		words := append([]string{"recipe", "env", "try"}, r.Arguments()...)
		p.Findings = append(p.Findings, plan.Finding{Severity: "info", Address: op.Address, Summary: fmt.Sprintf(
			"a plan does not open it; %s --dry-run does, and asks no model",
			printable.ShellWords(append(words, file, op.Address.String())...))})
	}
}

// show prints the plan in the form that was asked for.
func (f *planFlags) show(a *app, p *plan.Plan) error {
	switch {
	case f.asJSON:
		return view.JSON(a.out, p)
	case f.markdown:
		return view.Markdown(a.out, p)
	}
	return view.Plan(a.out, a.style(), p)
}
