package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/engine/outfile"
	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/schema/diagnostic"
)

// annotations are what a command reports to a CI system: each problem at its place in a file of the repository.
type annotations struct {
	format      string // one of annotationFormats
	codeQuality string // the file of a report for GitLab; empty: none
	items       []diagnostic.Item
}

var annotationFormats = []string{"auto", "github", "none"}

func (n *annotations) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&n.format, "annotations", "auto",
		"print each problem on standard error for a CI system to show at its line: github, none, or auto, which is "+
			"github where GITHUB_ACTIONS is true")
	cmd.PreRunE = func(*cobra.Command, []string) error { // not after a plan was printed
		if !slices.Contains(annotationFormats, n.format) {
			return fmt.Errorf("--annotations %q: expected one of %s", n.format, strings.Join(annotationFormats, ", "))
		}
		return nil
	}
	_ = cmd.RegisterFlagCompletionFunc("annotations",
		cobra.FixedCompletions(annotationFormats, cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().StringVar(&n.codeQuality, "code-quality", "",
		"write the problems to a `FILE` as a code quality report of GitLab")
}

// findings adds those of a plan.
func (n *annotations) findings(p *plan.Plan) {
	for _, f := range p.Findings {
		n.items = append(n.items, itemOf(f))
	}
}

func itemOf(f plan.Finding) diagnostic.Item {
	return diagnostic.Item{Severity: f.Severity, Summary: f.Summary, Detail: f.Detail, Address: f.Subject(),
		Range: f.Range}
}

// hasErrors reports that one of the problems is an error.
func (n *annotations) hasErrors() bool {
	return slices.ContainsFunc(n.items, func(i diagnostic.Item) bool { return i.Severity == "error" })
}

// annotate reports what was collected. Recipe is the recipe file, for problems without a place.
func (a *app) annotate(ctx context.Context, n *annotations, recipe string) error {
	if n.format == "github" || n.format == "auto" && a.variable("GITHUB_ACTIONS") == "true" {
		if err := diagnostic.WriteGitHub(a.commands, n.items, a.inRepository); err != nil {
			return err
		}
	}
	if n.codeQuality == "" {
		return nil
	}
	var report bytes.Buffer
	if err := diagnostic.WriteCodeQuality(&report, n.items, recipe, a.inRepository); err != nil {
		return err
	}
	if err := outfile.Write(ctx, n.codeQuality, report.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the code quality report: %w", err)
	}
	return nil
}

// inRepository is a path relative to the repository that the CI system has checked out; elsewhere the path as it is.
func (a *app) inRepository(path string) string {
	root := a.variable("GITHUB_WORKSPACE")
	if root == "" {
		root = a.variable("CI_PROJECT_DIR")
	}
	absolute, err := filepath.Abs(path)
	if root == "" || err != nil {
		return path
	}
	rel, err := filepath.Rel(root, absolute)
	if err != nil || !filepath.IsLocal(rel) {
		return path
	}
	return filepath.ToSlash(rel)
}

// variable is the value of a variable of the environment; the last one counts.
func (a *app) variable(name string) string {
	for _, entry := range slices.Backward(a.environ) {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}
