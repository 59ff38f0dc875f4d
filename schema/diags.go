package schema

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/recipe-rl/recipe/internal/nearest"
)

func problem(at hcl.Range, summary, detail string) *hcl.Diagnostic {
	return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: detail, Subject: &at}
}

func warning(at hcl.Range, summary, detail string) *hcl.Diagnostic {
	return &hcl.Diagnostic{Severity: hcl.DiagWarning, Summary: summary, Detail: detail, Subject: &at}
}

const (
	maxMistakes = 200  // that the parser reports of a file
	maxReported = 500  // of a recipe: each is shown with its place in the file
	maxFound    = 1000 // of a recipe: then no more are looked for in references and files
	maxListed   = 40   // names in a message
)

// few are the first diagnostics, with how many more there are. A file may have a mistake in every second byte.
func few(diags hcl.Diagnostics, most int) hcl.Diagnostics {
	if len(diags) <= most+1 {
		return diags
	}
	more := &hcl.Diagnostic{Severity: hcl.DiagWarning, Summary: "More mistakes",
		Detail: fmt.Sprintf("There are %d more. Correct those above first.", len(diags)-most)}
	if len(diags) >= maxFound {
		more.Detail = fmt.Sprintf("There are more than %d more. Correct those above first.", maxFound-most-1)
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

// placed adds to diagnostics of hcl a place where it is missing, as for a call whose arguments are cut off, and the
// names that are valid.
func placed(diags hcl.Diagnostics, at hcl.Range) hcl.Diagnostics {
	diags = once(diags) // a for expression repeats the same mistake for each element
	for _, d := range diags {
		if d.Subject == nil || d.Subject.Filename == "" {
			d.Subject = &at
		}
		enrich(d)
	}
	return diags
}

// didYouMean ends a message with the nearest known name, or with nothing.
func didYouMean(given string, known []string) string {
	best := nearest.Name(given, known)
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" Did you mean %q?", best)
}

func unknownAttribute(attr *hclsyntax.Attribute, where string, known []string) *hcl.Diagnostic {
	return problem(attr.NameRange, "Unknown attribute",
		fmt.Sprintf("There is no attribute %q in %s; it takes %s.%s", attr.Name, where, orNothing(known),
			didYouMean(attr.Name, known)))
}

func orNothing(known []string) string {
	if len(known) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(slices.Values(known)), ", ")
}

// someOf lists the first of many names, each in part when it is long.
func someOf(names []string) string {
	short := make([]string, 0, maxListed)
	for _, name := range names[:min(len(names), maxListed)] {
		short = append(short, shortened(name))
	}
	switch more := len(names) - maxListed; {
	case len(names) == 0:
		return "none"
	case more > 0:
		return strings.Join(short, ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(short, ", ")
}

// enough says whether so many mistakes were found that no more are looked for. That there is an error among them is
// needed: what is not looked at must not be valid.
func enough(diags hcl.Diagnostics) bool { return len(diags) >= maxFound && diags.HasErrors() }

func (ev *evaluation) enough() bool { return enough(ev.diags) || enough(ev.p.diags) }

func plural(n int, noun string) string {
	switch n {
	case 0:
		return "no " + noun + "s"
	case 1:
		return "one " + noun
	case 2:
		return "two " + noun + "s"
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// at2 writes where something is, for the text of another diagnostic.
func at2(r hcl.Range) string { return fmt.Sprintf("%s:%d", r.Filename, r.Start.Line) }

func header(block *hclsyntax.Block) hcl.Range {
	if n := len(block.LabelRanges); n > 0 {
		return hcl.RangeBetween(block.TypeRange, block.LabelRanges[n-1])
	}
	return block.TypeRange
}

func sortedAttributes(body *hclsyntax.Body) []*hclsyntax.Attribute {
	attrs := make([]*hclsyntax.Attribute, 0, len(body.Attributes))
	for _, attr := range body.Attributes {
		attrs = append(attrs, attr)
	}
	slices.SortFunc(attrs, func(a, b *hclsyntax.Attribute) int {
		return cmp.Compare(a.NameRange.Start.Byte, b.NameRange.Start.Byte)
	})
	return attrs
}

func noBlocks(body *hclsyntax.Body, where string) hcl.Diagnostics {
	var diags hcl.Diagnostics
	for _, inner := range body.Blocks {
		diags = append(diags, problem(header(inner), "Unknown block",
			fmt.Sprintf("A block %q is not allowed in %s.", inner.Type, where)))
	}
	return diags
}

// literalString evaluates an attribute that must be written out, because it is needed before anything is evaluated.
func literalString(attr *hclsyntax.Attribute, diags *hcl.Diagnostics) string {
	const expected = `a string in quotes, like "text"`
	if v, valueDiags := attr.Expr.Value(nil); !valueDiags.HasErrors() && attr.Name != "description" &&
		(v.Type() == cty.Number || v.Type() == cty.Bool) { // the version 1.10 would become 1.1
		*diags = append(*diags, problem(attr.Expr.Range(), "Literal expected",
			fmt.Sprintf("%q must be %s; got a %s.", attr.Name, expected,
				v.Type().FriendlyName())))
		return ""
	}
	v := literal(attr, cty.String, expected, diags)
	if v == cty.NilVal {
		return ""
	}
	text := v.AsString()
	if text == "" && attr.Name != "description" { // an empty one would count as one that is not there
		*diags = append(*diags, problem(attr.Expr.Range(), "Empty text", fmt.Sprintf("%q is empty: write %s, or remove it.",
			attr.Name, expected)))
	}
	return text
}

func literalBool(attr *hclsyntax.Attribute, diags *hcl.Diagnostics) bool {
	v := literal(attr, cty.Bool, "true or false", diags)
	return v != cty.NilVal && v.True()
}

func literal(attr *hclsyntax.Attribute, t cty.Type, expected string, diags *hcl.Diagnostics) cty.Value {
	if len(attr.Expr.Variables()) == 0 {
		v, valueDiags := attr.Expr.Value(nil)
		if !valueDiags.HasErrors() && !v.IsNull() && v.IsKnown() {
			if v, err := convert.Convert(v, t); err == nil {
				return v
			}
		}
	}
	*diags = append(*diags, problem(attr.Expr.Range(), "Literal expected",
		fmt.Sprintf("%q must be %s; it is needed before variables and functions are evaluated.", attr.Name, expected)))
	return cty.NilVal
}

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

// tidy sorts diagnostics by place and drops duplicates: instances of one block report the same error once.
func tidy(diags hcl.Diagnostics) hcl.Diagnostics {
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
