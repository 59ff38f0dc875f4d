package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/engine/outfile"
	"github.com/recipe-rl/recipe/engine/report"
)

func newReport(a *app) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "report [RUN]",
		Short: "Write an HTML report of a run: curves, samples, warnings, configuration",
		Long: `Write an HTML report of a run: state, curves, newest samples, warnings, outputs and configuration.
The file needs no server, loads nothing and runs no script, so it can be mailed and kept. RUN is a name of recipe runs,
a recipe file, its folder or a run directory; without it, the run of this folder. Sensitive values
are not in it; prompts and completions are.`,
		Example: "  recipe report quickstart.hcl -o report.html",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, _, err := findRun(strings.Join(args, ""))
			if err != nil {
				return err
			}
			var page bytes.Buffer
			if err := report.Write(cmd.Context(), &page, dir); err != nil {
				return err
			}
			if out == "-" {
				_, err = page.WriteTo(a.out)
				return err
			}
			if err := outfile.Write(cmd.Context(), out, page.Bytes(), 0o600); err != nil {
				return fmt.Errorf("write the report: %w", err)
			}
			_, err = fmt.Fprintf(a.out, "%s (%d kB)\n", out, page.Len()/1000)
			return err
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "report.html", "the `FILE` to write; - is standard output")
	return cmd
}
