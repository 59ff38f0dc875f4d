package view

import (
	"bytes"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"github.com/recipe-rl/recipe/engine/recipetest"
	"github.com/recipe-rl/recipe/schema/diagnostic"
)

// someTests is a report with every verdict, and with a file that could not be read.
func someTests() *recipetest.Report {
	at := hcl.Range{Filename: "sums.test.hcl", Start: hcl.Pos{Line: 2, Column: 3, Byte: 12},
		End: hcl.Pos{Line: 2, Column: 7, Byte: 16}}
	files := map[string]*hcl.File{"sums.test.hcl": {Bytes: []byte("run \"three\"\n  1 < 0\n")}}
	failed := hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Assertion failed", Detail: "one < zero & \"more\"",
		Subject: &at}}
	skipped := hcl.Diagnostics{{Severity: hcl.DiagWarning, Summary: "Skipped", Detail: "The run \"three\" did not pass."}}
	unread := hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Test file not found", Detail: "Nothing there."}}
	r := &recipetest.Report{FormatVersion: recipetest.FormatVersion, Passed: 1, Failed: 2, Skipped: 1, Seconds: 4.5,
		Runs: []*recipetest.Result{
			{File: "sums.test.hcl", Run: "two", Command: "plan", Verdict: recipetest.Pass, Seconds: 0.25},
			{File: "sums.test.hcl", Run: "three", Command: "apply", Verdict: recipetest.Fail, Seconds: 4, Diags: failed,
				Files: files},
			{File: "sums.test.hcl", Run: "four", Command: "plan", Verdict: recipetest.Skip, Diags: skipped},
			{File: "other.test.hcl", Verdict: recipetest.Fail, Diags: unread},
		}}
	for _, run := range r.Runs {
		run.Diagnostics = diagnostic.NewReport(run.Diags, run.Files).Diagnostics
	}
	return r
}

func TestResultsOfTests(t *testing.T) {
	t.Parallel()
	var people, machines bytes.Buffer
	for _, r := range someTests().Runs {
		TestResult(&people, Style{}, r)
	}
	if err := TestSummary(&people, Style{}, someTests()); err != nil {
		t.Fatal(err)
	}
	golden(t, "tests.txt", people.Bytes())
	if err := JSON(&machines, someTests()); err != nil {
		t.Fatal(err)
	}
	golden(t, "tests.json", machines.Bytes())
	junit, err := JUnit(someTests())
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "tests.xml", junit)
}
