package view

import (
	"fmt"
	"io"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// Diagnostics shows what is wrong with a recipe, each with its place, snippet and remedy.
func Diagnostics(w io.Writer, s Style, r *schema.Recipe, diags hcl.Diagnostics) error {
	return diagnostic.Print(w, diags, r.Files, diagnostic.Options{Color: s.Color, Width: max(s.Width, 80)})
}

// DiagnosticsJSON writes the machine-readable form, also when there are none.
func DiagnosticsJSON(w io.Writer, r *schema.Recipe, diags hcl.Diagnostics) error {
	return diagnostic.WriteJSON(w, diags, r.Files)
}

// Validation reports whether a recipe is well, to out, and what is wrong with it, to errs.
func Validation(out, errs io.Writer, s, errStyle Style, r *schema.Recipe, diags hcl.Diagnostics) error {
	if len(diags) > 0 {
		if err := Diagnostics(errs, errStyle, r, diags); err != nil {
			return err
		}
	}
	if diags.HasErrors() {
		_, err := fmt.Fprintf(errs, "\n%s\n", errStyle.Red(count(len(diags.Errs()), "error")+"."))
		return err
	}
	_, err := io.WriteString(out, s.Green("Valid.")+" "+describe(r)+"\n")
	return err
}

// describe counts what a recipe declares, by kind.
func describe(r *schema.Recipe) string {
	counts := map[kind.Kind]int{}
	for _, b := range r.Blocks {
		counts[b.Addr.Kind]++
	}
	var parts []string
	for _, k := range kind.All() {
		if n := counts[k]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, k))
		}
	}
	if n := len(r.Evaluations); n > 0 {
		parts = append(parts, count(n, "evaluation"))
	}
	if n := len(r.Alerts); n > 0 {
		parts = append(parts, count(n, "alert"))
	}
	if n := len(r.Trackers); n > 0 {
		parts = append(parts, count(n, "tracker"))
	}
	text := fmt.Sprintf("Recipe %s declares %s", r.Name, count(len(r.Blocks), "block"))
	if len(parts) == 0 {
		return text + "."
	}
	return text + ": " + strings.Join(parts, ", ") + "."
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
