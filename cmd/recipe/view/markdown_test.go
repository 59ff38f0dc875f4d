package view

import (
	"bytes"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/schema/diagnostic"
)

func TestPlanAsMarkdown(t *testing.T) {
	t.Parallel()
	p := everyAction(t)
	p.Findings = append(p.Findings, plan.Finding{Severity: "error", Policy: "ci/limits.py", Summary: "at most 3 steps"})
	var out bytes.Buffer
	if err := Markdown(&out, p); err != nil {
		t.Fatal(err)
	}
	golden(t, "plan.md", out.Bytes())
	if strings.Contains(out.String(), "mXk0") {
		t.Error("the fingerprint of a secret is shown")
	}
}

// TestMarkdownIsInert: no text of a recipe or a policy becomes markup, ends the code block or mentions a person.
func TestMarkdownIsInert(t *testing.T) {
	t.Parallel()
	const hostile = "x` ``` </details> <img src=x> | [a](b) @someone\n```\n# heading"
	p := &plan.Plan{Recipe: hostile, Counts: map[plan.Action]int{plan.Restart: 1},
		Operations: []*plan.Operation{{Address: block(t, "trainer.tiny.policy"), Action: plan.Restart,
			Reasons: []plan.Reason{{Text: hostile}}}},
		Findings: []plan.Finding{{Severity: "error", Policy: hostile, Summary: hostile, Detail: hostile}}}
	var out bytes.Buffer
	if err := Markdown(&out, p); err != nil {
		t.Fatal(err)
	}
	above, details, ok := strings.Cut(out.String(), "<details>")
	if !ok || !strings.Contains(details, "\n````text\n") || !strings.HasSuffix(details, "\n````\n\n</details>\n") {
		t.Errorf("the details are not closed in: %s", details)
	}
	for _, line := range strings.Split(above, "\n") {
		if strings.HasPrefix(line, "# heading") || strings.HasPrefix(line, "```") {
			t.Errorf("a text starts a line: %s", line)
		}
		if cells := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|"); strings.HasPrefix(line, "| restart") && cells != 4 {
			t.Errorf("a text makes a cell: %s", line)
		}
	}
	out.Reset()
	if err := Markdown(&out, &plan.Plan{Recipe: "r", Outputs: nil, Counts: map[plan.Action]int{},
		Findings: []plan.Finding{{Severity: "info", Policy: "p", Detail: strings.Repeat("é", 100_000)}}}); err != nil {
		t.Fatal(err)
	}
	if out.Len() > 65_536 || !strings.Contains(out.String(), "cut off") {
		t.Errorf("%d bytes: more than a comment holds", out.Len())
	}
}

func TestErrorsAsMarkdown(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	items := []diagnostic.Item{{Severity: "error", Summary: "Wrong", Detail: "Do <this>.",
		Range: &diagnostic.Range{File: "sums.hcl", Start: diagnostic.Pos{Line: 3}}}}
	if err := MarkdownErrors(&out, "sums.hcl", items); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "- **Error** `sums.hcl:3` Wrong: Do &lt;this\\>.\n") {
		t.Errorf("got %s", out.String())
	}
}
