package view

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/schema/diagnostic"
)

// maxMarkdown is how long the details may be. A comment of GitHub holds 65,536 characters.
const maxMarkdown = 60_000

// Markdown writes a plan as a comment of a pull request. Its first line is a marker that people do not see, by which a
// job finds the comment of an earlier push.
func Markdown(out io.Writer, p *plan.Plan) error {
	w := bufio.NewWriter(out)
	heading(w, p.Recipe, Counts(Style{}, p))
	if p.Changes() {
		fmt.Fprint(w, "| | block | why |\n|---|---|---|\n")
		for _, op := range p.Operations {
			if op.Changes() {
				fmt.Fprintf(w, "| %s | `%s` | %s |\n", verb(op), op.Address, cell(reasons(op)))
			}
		}
		fmt.Fprintln(w)
	}
	for _, f := range p.Findings {
		fmt.Fprintf(w, "- **%s** %s: %s\n", severity(f.Severity), code(f.Subject()), inert(f.Summary))
	}
	if len(p.Findings) > 0 {
		fmt.Fprintln(w)
	}
	var details bytes.Buffer
	if err := Plan(&details, Style{}, p); err != nil {
		return err
	}
	folded(w, "Details", details.String())
	return w.Flush()
}

// MarkdownErrors writes what is wrong with a recipe as a comment of a pull request.
func MarkdownErrors(out io.Writer, recipe string, items []diagnostic.Item) error {
	w := bufio.NewWriter(out)
	heading(w, recipe, "The recipe has errors, so there is no plan.")
	for _, item := range items {
		where := ""
		if item.Range != nil {
			where = " " + code(fmt.Sprintf("%s:%d", item.Range.File, item.Range.Start.Line))
		}
		fmt.Fprintf(w, "- **%s**%s %s: %s\n", severity(item.Severity), where, inert(item.Summary), inert(item.Detail))
	}
	return w.Flush()
}

func heading(w io.Writer, recipe, summary string) {
	fmt.Fprintf(w, "<!-- recipe plan %s -->\n### Plan for recipe %s\n\n%s\n\n",
		strings.ReplaceAll(strings.Join(strings.Fields(recipe), " "), "--", "- -"), code(recipe), inert(summary))
}

// severity is the word for a finding or a diagnostic.
func severity(s string) string {
	switch s {
	case "error":
		return "Error"
	case "warning":
		return "Warning"
	}
	return "Note"
}

func reasons(op *plan.Operation) string {
	texts := make([]string, 0, len(op.Reasons)+1)
	for _, r := range op.Reasons {
		texts = append(texts, r.Text)
	}
	if len(op.Devices) > 0 {
		texts = append(texts, "on GPU "+strings.Join(op.Devices, ", "))
	}
	return strings.Join(texts, "; ")
}

var special = regexp.MustCompile("[\\\\`*_\\[\\]<>&#|~@]")

// inert writes text as one line without markup: neither HTML nor a mention of a person in it is effective.
func inert(s string) string {
	s = special.ReplaceAllStringFunc(strings.Join(strings.Fields(s), " "), func(c string) string {
		switch c {
		case "<":
			return "&lt;"
		case "&":
			return "&amp;"
		case "@":
			return "@\u200b"
		}
		return `\` + c
	})
	return s
}

// cell is inert for a table.
func cell(s string) string { return inert(brief(s)) }

// code sets text as code, whatever backticks are in it.
func code(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	fence := strings.Repeat("`", longestRun(s)+1)
	if len(fence) > 1 {
		return fence + " " + s + " " + fence
	}
	return fence + s + fence
}

// folded writes a text that is opened with a click.
func folded(w io.Writer, title, text string) {
	if len(text) > maxMarkdown {
		text = strings.ToValidUTF8(text[:maxMarkdown], "") + "\n… the rest is cut off: run recipe plan to see it\n"
	}
	fence := strings.Repeat("`", max(3, longestRun(text)+1))
	fmt.Fprintf(w, "<details><summary>%s</summary>\n\n%stext\n%s\n%s\n\n</details>\n", title, fence,
		strings.TrimRight(text, "\n"), fence)
}

// longestRun is the number of backticks in the longest run of them.
func longestRun(s string) int {
	longest, run := 0, 0
	for _, c := range s {
		if c != '`' {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	return longest
}

func verb(op *plan.Operation) string {
	if op.Action == plan.Nothing {
		return "move"
	}
	return string(op.Action)
}
