package view

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Validated is what was found of the task folders of an environment.
type Validated struct {
	Environment string          `json:"environment"`
	OK          bool            `json:"ok"` // nothing is wrong with a task
	Tasks       []ValidatedTask `json:"tasks"`
}

// ValidatedTask is what was found of one task folder.
type ValidatedTask struct {
	Task     string       `json:"task"`
	Folder   string       `json:"folder"`             // relative to the recipe's folder
	Solution []TaskReward `json:"solution,omitempty"` // one a try, after the solution of the task
	Nothing  []TaskReward `json:"nothing,omitempty"`  // after nothing was done
	Wrong    []string     `json:"wrong,omitempty"`
	Warnings []string     `json:"warnings,omitempty"`
}

// TaskReward is what the tests of a task gave.
type TaskReward struct {
	Score  *float64 `json:"score,omitempty"`  // nil: they gave none
	Failed string   `json:"failed,omitempty"` // why
	Output string   `json:"output,omitempty"` // the last lines of the tests
}

// Show prints a line a task, and below it what is wrong.
func (v Validated) Show(w io.Writer, s Style) error {
	var rows [][]Cell
	for _, t := range v.Tasks {
		verdict := Cell{Text: "ok", Paint: s.Green}
		if len(t.Wrong) > 0 {
			verdict = Cell{Text: "wrong", Paint: s.Red}
		}
		rows = append(rows, []Cell{{Text: t.Task, Paint: s.Bold}, {Text: rewards(t.Solution)}, {Text: rewards(t.Nothing)},
			verdict})
	}
	if err := Table(w, s, []string{"TASK", "SOLUTION", "NOTHING", "VERDICT"}, rows); err != nil {
		return err
	}
	wrong := 0
	for _, t := range v.Tasks {
		if len(t.Wrong) > 0 {
			wrong++
		}
		for _, line := range t.Wrong {
			fmt.Fprintf(w, "\n%s %s: %s\n", s.Red("wrong"), t.Folder, line)
		}
		for _, line := range t.Warnings {
			fmt.Fprintf(w, "\n%s %s: %s\n", s.Yellow("warning"), t.Folder, line)
		}
	}
	_, err := fmt.Fprintf(w, "\n%d of %d tasks are valid\n", len(v.Tasks)-wrong, len(v.Tasks))
	return err
}

// rewards are those of several tries, each once.
func rewards(tries []TaskReward) string {
	var out []string
	for _, t := range tries {
		text := "none"
		if t.Score != nil {
			text = strconv.FormatFloat(*t.Score, 'g', 4, 64)
		}
		if len(out) == 0 || out[len(out)-1] != text {
			out = append(out, text)
		}
	}
	if len(out) == 0 {
		return "-"
	}
	return strings.Join(out, ", ")
}

// ValidatedJSON writes {"format_version": "1.0", "environment": …, "ok": …, "tasks": […]}.
func ValidatedJSON(w io.Writer, v Validated) error {
	return JSON(w, struct {
		FormatVersion string `json:"format_version"`
		Validated
	}{"1.0", v})
}
