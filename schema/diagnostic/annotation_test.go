package diagnostic_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/schema/diagnostic"
)

func annotated() []diagnostic.Item {
	at := func(fromLine, fromColumn, toLine, toColumn int) *diagnostic.Range {
		return &diagnostic.Range{File: "a.hcl", Start: diagnostic.Pos{Line: fromLine, Column: fromColumn},
			End: diagnostic.Pos{Line: toLine, Column: toColumn}}
	}
	return []diagnostic.Item{
		{Severity: "error", Summary: "Wrong, very: 100%", Detail: "Do this\nand that.", Address: "trainer.grpo.t",
			Range: at(2, 3, 2, 9)},
		{Severity: "warning", Summary: "Old", Range: at(4, 1, 6, 2)},
		{Severity: "info", Summary: "Note"},
		{Severity: "error", Summary: "Note"},
		{Severity: "error", Summary: "Note"},
	}
}

func prefixed(path string) string { return "recipes/" + path }

// TestGitHub compares with the escapes of the toolkit of GitHub Actions: % and line ends everywhere, and in properties
// also : and , which separate them.
func TestGitHub(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := diagnostic.WriteGitHub(&out, annotated()[:3], prefixed); err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"::error file=recipes/a.hcl,line=2,endLine=2,col=3,endColumn=9,title=Wrong%2C very%3A 100%25::" +
			"trainer.grpo.t: Do this%0Aand that.",
		"::warning file=recipes/a.hcl,line=4,endLine=6,title=Old::Old",
		"::notice title=Note::Note", ""}, "\n")
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestCodeQuality(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := diagnostic.WriteCodeQuality(&out, annotated(), "b.hcl", prefixed); err != nil {
		t.Fatal(err)
	}
	var issues []struct {
		Description, Fingerprint, Severity string
		Check                              string `json:"check_name"`
		Location                           struct {
			Path  string
			Lines struct{ Begin int }
		}
	}
	if err := json.Unmarshal(out.Bytes(), &issues); err != nil || len(issues) != 5 {
		t.Fatalf("%v\n%s", err, out.String())
	}
	first := issues[0]
	if first.Severity != "critical" || first.Location.Path != "recipes/a.hcl" || first.Location.Lines.Begin != 2 ||
		first.Description != "Wrong, very: 100%: trainer.grpo.t: Do this\nand that." || first.Check != "recipe" {
		t.Errorf("%+v", first)
	}
	if issues[2].Severity != "info" || issues[2].Location.Path != "recipes/b.hcl" || issues[2].Location.Lines.Begin != 1 {
		t.Errorf("a problem without a place: %+v", issues[2])
	}
	prints := map[string]bool{}
	for _, issue := range issues {
		prints[issue.Fingerprint] = true
	}
	if len(prints) != len(issues) {
		t.Errorf("%d fingerprints of %d issues: GitLab would drop some", len(prints), len(issues))
	}
	out.Reset()
	if err := diagnostic.WriteCodeQuality(&out, nil, "b.hcl", prefixed); err != nil || out.String() != "[]\n" {
		t.Errorf("no problems must be an empty list, got %q, %v", out.String(), err)
	}
	moved := annotated()
	moved[0].Range.Start.Line, moved[0].Range.End.Line = 90, 90
	out.Reset()
	if err := diagnostic.WriteCodeQuality(&out, moved, "b.hcl", prefixed); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), first.Fingerprint) {
		t.Error("a problem that moved to another line must keep its fingerprint")
	}
}
