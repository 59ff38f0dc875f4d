package view

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/recipe-rl/recipe/engine/recipetest"
	"github.com/recipe-rl/recipe/schema/diagnostic"
)

// TestResult describes what came of one run of a test, and where it failed.
func TestResult(w io.Writer, s Style, r *recipetest.Result) {
	verdict := map[recipetest.Verdict]string{recipetest.Pass: s.Green("pass"), recipetest.Fail: s.Red("FAIL"),
		recipetest.Skip: s.Yellow("skip")}[r.Verdict]
	name := OneLine(r.File)
	if r.Run != "" {
		name += " " + s.Bold(r.Run)
	}
	took := ""
	if r.Verdict != recipetest.Skip {
		took = s.Dim(fmt.Sprintf("  %.1fs", r.Seconds))
	}
	fmt.Fprintf(w, "%s  %s%s\n", verdict, name, took)
	if len(r.Diags) > 0 {
		fmt.Fprintln(w)
		_ = diagnostic.Print(w, r.Diags, r.Files, diagnostic.Options{Color: s.Color, Width: max(s.Width, 80)})
		fmt.Fprintln(w)
	}
}

// TestSummary counts what came of all runs.
func TestSummary(w io.Writer, s Style, r *recipetest.Report) error {
	text := s.Green(fmt.Sprintf("%d passed", r.Passed))
	if r.Failed > 0 {
		text = s.Red(fmt.Sprintf("%d failed", r.Failed)) + fmt.Sprintf(", %d passed", r.Passed)
	}
	if r.Skipped > 0 {
		text += fmt.Sprintf(", %d skipped", r.Skipped)
	}
	_, err := fmt.Fprintf(w, "\n%s in %.1fs\n", text, r.Seconds)
	return err
}

// JUnit is the form of a report that CI systems read: a suite for each file, a case for each run.
func JUnit(report *recipetest.Report) ([]byte, error) {
	var suites []*junitSuite
	took := map[string]float64{}
	for _, r := range report.Runs {
		if len(suites) == 0 || suites[len(suites)-1].Name != r.File {
			suites = append(suites, &junitSuite{Name: r.File})
		}
		suite := suites[len(suites)-1]
		one := junitCase{Class: strings.TrimSuffix(r.File, ".test.hcl"), Name: r.Run, Time: fmt.Sprintf("%.3f", r.Seconds)}
		if one.Name == "" {
			one.Name = "read the file"
		}
		var text bytes.Buffer
		if err := diagnostic.Print(&text, r.Diags, r.Files, diagnostic.Options{}); err != nil {
			return nil, err
		}
		message := &junitMessage{Text: text.String()}
		if len(r.Diags) > 0 {
			message.Message = r.Diags[0].Summary
		}
		suite.Tests++
		switch r.Verdict {
		case recipetest.Fail:
			suite.Failures++
			one.Failure = message
		case recipetest.Skip:
			suite.Skipped++
			one.Skipped = message
		case recipetest.Pass:
		}
		took[r.File] += r.Seconds
		suite.Time = fmt.Sprintf("%.3f", took[r.File])
		suite.Cases = append(suite.Cases, one)
	}
	data, err := xml.MarshalIndent(struct {
		XMLName xml.Name `xml:"testsuites"`
		Suites  []*junitSuite
	}{Suites: suites}, "", "  ")
	return append([]byte(xml.Header), append(data, '\n')...), err
}
