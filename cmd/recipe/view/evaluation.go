package view

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/recipe-rl/recipe/engine/run"
)

// Evaluation shows what an environment measured on demand, a metric a line.
func Evaluation(w io.Writer, s Style, e *run.Evaluation) error {
	if _, err := fmt.Fprintf(w, "%s, policy version %d\n", s.Bold(e.Address.String()), e.PolicyVersion); err != nil {
		return err
	}
	var rows [][]Cell
	for _, name := range slices.Sorted(maps.Keys(e.Metrics)) {
		rows = append(rows, Cells("  "+name, number(e.Metrics[name])))
	}
	for _, line := range Rows(rows, 0) {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}
