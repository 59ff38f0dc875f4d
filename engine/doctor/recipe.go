package doctor

import (
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"

	"github.com/recipe-rl/recipe/schema"
)

// Recipe is the finding about a recipe that was loaded from file, with its diagnostics.
func Recipe(file string, r *schema.Recipe, diags hcl.Diagnostics) Finding {
	f := Finding{Name: "recipe", Verdict: OK}
	errs := slices.DeleteFunc(slices.Clone(diags), func(d *hcl.Diagnostic) bool { return d.Severity != hcl.DiagError })
	switch {
	case diags.HasErrors():
		f.Verdict = Fail
		f.Found = fmt.Sprintf("%s has %s, the first: %s", file, count(len(errs), "error"), placed(errs[0]))
		f.Remedy = "recipe validate " + file + " shows each with its line and what to do"
	case len(diags) > 0:
		f.Verdict = Warn
		f.Found = fmt.Sprintf("%s declares %s, with %s", file, count(len(r.Blocks), "block"),
			count(len(diags), "warning"))
		f.Remedy = "recipe validate " + file + " shows them"
	default:
		f.Found = fmt.Sprintf("%s declares %s", file, count(len(r.Blocks), "block"))
	}
	return f
}

// placed is a diagnostic as text, with its place if it has one.
func placed(d *hcl.Diagnostic) string {
	text := d.Summary + "; " + d.Detail
	if d.Subject != nil {
		text = d.Subject.String() + ": " + text
	}
	return text
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
