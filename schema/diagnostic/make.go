package diagnostic

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/recipe-rl/recipe/internal/nearest"
)

// Problem is an error at a place of a file.
func Problem(at hcl.Range, summary, detail string) *hcl.Diagnostic {
	return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: detail, Subject: &at}
}

// Warning is a warning at a place of a file.
func Warning(at hcl.Range, summary, detail string) *hcl.Diagnostic {
	return &hcl.Diagnostic{Severity: hcl.DiagWarning, Summary: summary, Detail: detail, Subject: &at}
}

const (
	// MaxFound is how many mistakes of a recipe are found: then no more are looked for in references and files.
	MaxFound = 1000
	// MaxListed is how many names are listed in a message.
	MaxListed = 40
)

// Few are the first diagnostics, with how many more there are. A file may have a mistake in every second byte.
func Few(diags hcl.Diagnostics, most int) hcl.Diagnostics {
	if len(diags) <= most+1 {
		return diags
	}
	more := &hcl.Diagnostic{Severity: hcl.DiagWarning, Summary: "More mistakes",
		Detail: fmt.Sprintf("There are %d more. Correct those above first.", len(diags)-most)}
	if len(diags) >= MaxFound {
		more.Detail = fmt.Sprintf("There are more than %d more. Correct those above first.", MaxFound-most-1)
	}
	if diags[most:].HasErrors() {
		more.Severity = hcl.DiagError
	}
	if at := diags[most-1].Subject; at != nil {
		behind := *at
		more.Subject = &behind
	}
	return append(slices.Clone(diags[:most]), more)
}

// Placed adds to diagnostics of hcl a place where it is missing, as for a call whose arguments are cut off, and the
// names that are valid.
func Placed(diags hcl.Diagnostics, at hcl.Range) hcl.Diagnostics {
	diags = once(diags) // a for expression repeats the same mistake for each element
	for _, d := range diags {
		if d.Subject == nil || d.Subject.Filename == "" {
			d.Subject = &at
		}
		enrich(d)
	}
	return diags
}

// DidYouMean ends a message with the nearest known name, or with nothing.
func DidYouMean(given string, known []string) string {
	best := nearest.Name(given, known)
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" Did you mean %q?", best)
}

// UnknownAttribute is the error for an attribute that a block does not have. where names the block, known its
// attributes.
func UnknownAttribute(attr *hclsyntax.Attribute, where string, known []string) *hcl.Diagnostic {
	return Problem(attr.NameRange, "Unknown attribute",
		fmt.Sprintf("There is no attribute %q in %s; it takes %s.%s", attr.Name, where, List(known),
			DidYouMean(attr.Name, known)))
}

// List are names for a message, in order.
func List(known []string) string {
	if len(known) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(slices.Values(known)), ", ")
}

// Some lists the first of many names, each in part when it is long.
func Some(names []string) string {
	short := make([]string, 0, MaxListed)
	for _, name := range names[:min(len(names), MaxListed)] {
		short = append(short, Shortened(name))
	}
	switch more := len(names) - MaxListed; {
	case len(names) == 0:
		return "none"
	case more > 0:
		return strings.Join(short, ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(short, ", ")
}

// Shortened is the beginning of a text that is too long for a message.
func Shortened(text string) string {
	const most = 60
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}

// Enough says whether so many mistakes were found that no more are looked for. That there is an error among them is
// needed: what is not looked at must not be valid.
func Enough(diags hcl.Diagnostics) bool { return len(diags) >= MaxFound && diags.HasErrors() }

// At writes where something is, for the text of another diagnostic.
func At(r hcl.Range) string { return fmt.Sprintf("%s:%d", r.Filename, r.Start.Line) }

// maxDiagnostics bounds what one run reports: a file that is not a recipe can have an error at every byte.
const maxDiagnostics = 1000

// once drops duplicates.
func once(diags hcl.Diagnostics) hcl.Diagnostics {
	if len(diags) < 2 {
		return diags
	}
	type key struct {
		summary, detail string
		subject         hcl.Range
	}
	seen := map[key]bool{}
	out := diags[:0:0]
	for _, d := range diags {
		k := key{summary: d.Summary, detail: d.Detail}
		if d.Subject != nil {
			k.subject = *d.Subject
		}
		if !seen[k] {
			seen[k] = true
			out = append(out, d)
		}
	}
	return out
}

// Tidy sorts diagnostics by place and drops duplicates: instances of one block report the same error once.
func Tidy(diags hcl.Diagnostics) hcl.Diagnostics {
	out := once(diags)
	slices.SortStableFunc(out, func(a, b *hcl.Diagnostic) int {
		if (a.Subject == nil) != (b.Subject == nil) {
			return map[bool]int{true: -1, false: 1}[a.Subject == nil]
		}
		if a.Subject == nil {
			return 0
		}
		return cmp.Or(cmp.Compare(a.Subject.Filename, b.Subject.Filename),
			cmp.Compare(a.Subject.Start.Byte, b.Subject.Start.Byte))
	})
	if more := len(out) - maxDiagnostics; more > 0 {
		out = append(out[:maxDiagnostics], &hcl.Diagnostic{Severity: hcl.DiagError, Summary: "Too many errors",
			Detail: fmt.Sprintf("%d more are not shown. They may follow from the first ones.", more)})
	}
	return out
}
