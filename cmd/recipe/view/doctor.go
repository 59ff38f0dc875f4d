package view

import (
	"fmt"
	"io"

	"github.com/recipe-rl/recipe/engine/doctor"
)

// Findings shows what doctor found, a line a check, with the remedy below what is not well.
func Findings(w io.Writer, s Style, findings []doctor.Finding) error {
	var rows [][]Cell
	for _, f := range findings {
		paint := s.Green
		switch f.Verdict {
		case doctor.Warn:
			paint = s.Yellow
		case doctor.Fail:
			paint = s.Red
		}
		rows = append(rows, []Cell{{Text: string(f.Verdict), Paint: paint}, {Text: f.Name, Paint: s.Bold},
			{Text: f.Found}})
	}
	lines := Rows(rows, 0)
	for i, f := range findings {
		if _, err := fmt.Fprintln(w, lines[i]); err != nil {
			return err
		}
		if f.Remedy != "" {
			if _, err := fmt.Fprintf(w, "      %s %s\n", s.Dim("→"), f.Remedy); err != nil {
				return err
			}
		}
	}
	return nil
}

// FindingsJSON writes {"format_version": "1.0", "ok": …, "checks": […]}.
func FindingsJSON(w io.Writer, findings []doctor.Finding) error {
	return JSON(w, struct {
		FormatVersion string           `json:"format_version"`
		OK            bool             `json:"ok"`
		Checks        []doctor.Finding `json:"checks"`
	}{"1.0", !doctor.Failed(findings), findings})
}
