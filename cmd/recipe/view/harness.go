package view

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/recipe-rl/recipe/engine/harness"
	"github.com/recipe-rl/recipe/engine/outfile"
)

// HarnessVersion is the `v` of a Harness.
const HarnessVersion = 1

// Harness is what an evaluation program of others measured.
type Harness struct {
	V             int             `json:"v"`
	Harness       string          `json:"harness"`
	Version       string          `json:"version"`                  // of the program
	Policy        string          `json:"policy"`                   // who answered, for people
	PolicyVersion *int64          `json:"policy_version,omitempty"` // nil: not known
	Tasks         []string        `json:"tasks"`
	Limit         int             `json:"limit,omitempty"` // samples of each task; 0: all
	Time          time.Time       `json:"time"`            // when it began
	Seconds       float64         `json:"seconds"`
	Folder        string          `json:"folder"` // the program's own files
	Scores        []harness.Score `json:"scores"`
}

// HarnessFile is the name of the file of a Harness in its folder.
const HarnessFile = "recipe.json"

// Save writes it into its folder.
func (r *Harness) Save(ctx context.Context) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = outfile.Write(ctx, filepath.Join(r.Folder, HarnessFile), append(text, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}

// Show prints it.
func (r *Harness) Show(w io.Writer, s Style) error {
	version := ""
	if r.PolicyVersion != nil {
		version = fmt.Sprintf(" (policy version %d)", *r.PolicyVersion)
	}
	if _, err := fmt.Fprintf(w, "%s by %s %s%s, %.0f s\n", s.Bold(OneLine(r.Policy)), r.Harness, OneLine(r.Version),
		version, r.Seconds); err != nil {
		return err
	}
	rows := [][]Cell{Cells("  task", "metric", "value", "standard error", "samples")}
	for _, x := range r.Scores {
		e := "–"
		if x.Error != nil {
			e = fmt.Sprintf("%.4f", *x.Error)
		}
		rows = append(rows, Cells("  "+OneLine(x.Task), OneLine(x.Metric), fmt.Sprintf("%.4f", x.Value), e,
			fmt.Sprint(x.Samples)))
	}
	for _, line := range Rows(rows, 0) {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "all files of %s: %s\n", r.Harness, r.Folder)
	return err
}
